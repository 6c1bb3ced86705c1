"""What would change on a node if cotenant took koordlet's place: read from the cluster's objects alone.

The values of files are compared on the node itself (:mod:`cotenant.act.comparison`); here is what follows from NodeSLO,
pods, the priority interface and koordlet's feature gates. Sources: koordinator-sh/koordinator as of July 2026.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from cotenant.act import group_identity, slo_fields
from cotenant.model.pod import Pod
from cotenant.model.policy import NodeSlo
from cotenant.model.priority import InterfaceName

Kind = Literal["irreversible", "starts", "stops", "differs", "refused", "unknown"]
KINDS: tuple[Kind, ...] = ("irreversible", "starts", "stops", "differs", "refused", "unknown")
"""In the order in which a person wants to read them."""

KOORDLETS: InterfaceName = "anolis-bvt"
"""The one priority interface that koordlet writes."""

GATES: Mapping[str, bool] = {
    "AuditEvents": False,
    "BECPUEvict": False,
    "BECPUSuppress": True,
    "BEMemoryEvict": False,
    "BlkIOReconcile": False,
    "CPUAllocatableEvict": False,
    "CPUBurst": True,
    "CPUEvict": False,
    "CPUNormalization": False,
    "CgroupReconcile": False,
    "CoreSched": False,
    "GroupIdentity": True,
    "MemoryAllocatableEvict": False,
    "MemoryEvict": False,
    "RdtResctrl": True,
    "Resctrl": False,
    "SystemConfig": False,
}
"""koordlet's feature gates that decide over what a NodeSLO asks, with their defaults."""

_TRUE = ("1", "t", "true")
"""What koordlet's flags take for true, in lower case."""

_EVICTIONS = ("BECPUEvict", "BEMemoryEvict", "CPUEvict", "MemoryEvict", "CPUAllocatableEvict", "MemoryAllocatableEvict")


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """What a node's report says of its priority interface; ``irreversible`` None: not whether levels can be undone."""

    name: InterfaceName
    irreversible: bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One thing that would change. ``subject`` is a pod (``namespace/name``), a field of the NodeSLO, or the node."""

    kind: Kind
    subject: str
    text: str


def gates_of(arguments: Sequence[str]) -> dict[str, bool]:
    """Return koordlet's feature gates by its command line: those given over the groups, over the defaults.

    A gate that is off by default is alpha, one that is on is beta: ``AllAlpha`` and ``AllBeta`` set those that are not
    given by name. The DaemonSet in Koordinator's own repository sets both.
    """
    given: dict[str, bool] = {}
    for position, argument in enumerate(arguments):
        name, _, value = argument.lstrip("-").partition("=")
        if name != "feature-gates":
            continue
        if not value and position + 1 < len(arguments):
            value = arguments[position + 1]
        for entry in value.split(","):
            gate, _, state = entry.strip().partition("=")
            if gate:
                given[gate] = state.strip().lower() in _TRUE
    alpha, beta = given.pop("AllAlpha", False), given.pop("AllBeta", True)
    return {**{gate: beta if default else alpha for gate, default in GATES.items()}, **given}


def changes(
    slo: NodeSlo,
    written: Mapping[str, Any],
    pods: Sequence[Pod],
    interface: Interface | None,
    gates: Mapping[str, bool] = GATES,
    ratio: Fraction = Fraction(1),
) -> tuple[Change, ...]:
    """Return what would change on one node, what cannot be undone first.

    ``written`` is the NodeSLO object as it is in the cluster, ``pods`` those of the node, ``interface`` None where no
    report says which one the node has, ``ratio`` its CPU normalization ratio.
    """
    found = [
        *_priorities(slo, pods, interface),
        *_annotations(slo, pods),
        *_gated(slo, gates),
        *_suppression(slo),
        *_memory(slo, pods, gates),
        *_normalization(pods, gates, ratio),
        *(Change("refused", field, reason) for field, reason in slo_fields.refused(written)),
    ]
    return ordered(found)


def ordered(found: Iterable[Change]) -> tuple[Change, ...]:
    """Return changes once each, in the order in which a person wants to read them."""
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (KINDS.index(one.kind), one.subject, one.text)))


def _priorities(slo: NodeSlo, pods: Sequence[Pod], interface: Interface | None) -> Iterator[Change]:
    if not group_identity.enabled(slo):
        return
    if interface is None:
        yield Change(
            "unknown",
            "node",
            "no report names the node's priority interface: run cotenant node --shadow there, or cotenant check",
        )
        return
    if interface.name == KOORDLETS:
        return
    offline = [
        pod for pod in pods if pod.active and pod.qos_label == "BE" and group_identity.pod_identity(slo, pod) < 0
    ]
    if interface.irreversible:
        for pod in offline:
            text = f"offline by {interface.name} until the pod is recreated; koordlet leaves those files alone"
            yield Change("irreversible", pod.key, text)
    elif offline:
        text = f"{len(offline)} offline pods get the priority of {interface.name}, which koordlet does not know"
        yield Change("starts", "node", text)
        if interface.irreversible is None:
            yield Change(
                "unknown", "node", "the report does not say whether that can be undone: run cotenant check there"
            )


def _annotations(slo: NodeSlo, pods: Sequence[Pod]) -> Iterator[Change]:
    if not group_identity.enabled(slo):
        return
    for pod in pods:
        if pod.qos_label == "LS" and pod.cpu_qos and "enable" not in pod.cpu_qos:
            ours = group_identity.pod_identity(slo, pod)
            if ours != 0:
                text = f"its cpuQOS annotation has no `enable`: identity 0 by koordlet, {ours} (its class) here"
                yield Change("differs", pod.key, text)
        if pod.qos_label == "SYSTEM" and pod.kube_qos == "Burstable":
            theirs, ours = group_identity.directory_identity(slo, "Burstable"), group_identity.pod_identity(slo, pod)
            if theirs != ours:
                yield Change("differs", pod.key, f"a SYSTEM pod: identity {theirs} by koordlet, {ours} here")


def _gated(slo: NodeSlo, gates: Mapping[str, bool]) -> Iterator[Change]:
    """Yield what the NodeSLO asks for and koordlet's gates keep off: here the NodeSLO alone decides."""
    qos = (slo.qos.lsr_class, slo.qos.ls_class, slo.qos.be_class, slo.qos.system_class)
    asked = {
        "CgroupReconcile": ("memory QoS (memory.min, low, high)", any(one.memory_qos.enable for one in qos)),
        "BlkIOReconcile": ("block I/O limits and weights", any(one.blkio_qos.enable for one in qos)),
        "CPUBurst": ("CPU burst", slo.cpu_burst.policy not in (None, "", "none")),
        "RdtResctrl": ("cache ways and memory bandwidth", any(one.resctrl_qos.enable for one in qos)),
        "GroupIdentity": ("priority by class", group_identity.enabled(slo)),
        "BECPUSuppress": ("CPU suppression of offline work", slo.threshold.enable),
        "CoreSched": ("core scheduling", slo.qos.policies.cpu_policy == "coreSched"),
    }
    for gate, (what, wanted) in asked.items():
        if wanted and not gates.get(gate, False):
            text = f"{what}: the NodeSLO asks for it, koordlet's gate {gate} is off; here the NodeSLO decides"
            yield Change("starts", "node", text)
    if slo.threshold.enable:
        on = [gate for gate in _EVICTIONS if gates.get(gate, False)]
        if on:
            text = f"evictions ({', '.join(on)}): koordlet kills containers; here nothing is evicted without --evict"
            yield Change("stops", "node", text)


def _suppression(slo: NodeSlo) -> Iterator[Change]:
    if slo.threshold.enable and slo.threshold.cpu_suppress_policy == "cfsQuota":
        text = (
            "the least that suppression leaves offline work is min(2, ceil(CPUs/4)) CPUs; by koordlet 2,000 µs of quota"
        )
        yield Change("differs", "spec.resourceUsedThresholdWithBE.cpuSuppressPolicy", text)


def _memory(slo: NodeSlo, pods: Sequence[Pod], gates: Mapping[str, bool]) -> Iterator[Change]:
    if not slo.qos.be_class.memory_qos.enable or not gates.get("CgroupReconcile", False):
        return
    for pod in pods:
        native = any(one.request_memory_bytes() or one.limit_memory_bytes() for one in pod.containers)
        if pod.active and pod.qos_label == "BE" and native and not pod.has_extended_spec:
            text = "offline without batch-memory: its native request and limit do not count by koordlet, they do here"
            yield Change("differs", pod.key, text)


def _normalization(pods: Sequence[Pod], gates: Mapping[str, bool], ratio: Fraction) -> Iterator[Change]:
    if ratio <= 1 or gates.get("CPUNormalization", False):
        return
    limited = sum(
        pod.active and pod.qos_label in (None, "LS") and any(one.limit_millicores() for one in pod.containers)
        for pod in pods
    )
    text = (
        f"quotas of batch-cpu and of {limited} LS and unlabelled pods are divided by the node's CPU normalization ratio"
        f" {float(ratio):g}: koordlet's gate CPUNormalization is off; here the Node's annotation decides"
    )
    yield Change("starts", "node", text)
