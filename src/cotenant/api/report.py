"""``NodeInterferenceReport``: what the analyzer says of each node, and of all nodes in the object named ``cluster``.

Every field is absent where it is unknown. The docstrings below are the descriptions in the CRD.
"""

from typing import Annotated, Any, Literal

import msgspec

from cotenant.model import evaluation
from cotenant.model.evaluation import Bucket, DetectionName, HardLimit
from cotenant.model.sample import MissingReason

GROUP = "cotenant.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "NodeInterferenceReport"
PLURAL = "nodeinterferencereports"
CLUSTER = "cluster"
"""The name of the one object that sums up all nodes; it is not a node's report."""

Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
Mode = Literal["observe", "dry-run", "enforce"]


class ReportedSignal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One signal of a detection: its mean over the window, in its own unit, and the threshold it is held to."""

    name: str
    value: float | None = None
    index: Ratio | None = None
    threshold: float | None = None


class ReportedVictim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An online workload that stalls, as namespace/pod/container or as its control group."""

    name: str
    evidence: str | None = None


class ReportedSuspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload whose use of the resource rose with the pressure."""

    name: str
    confidence: Ratio | None = None
    evidence: str | None = None


class ReportedDetection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kind of interference. Without `triggered` nothing was known for too long to say; without `index` no signal is known."""  # noqa: E501

    type: DetectionName
    triggered: bool | None = None
    index: Ratio | None = None
    signals: list[ReportedSignal] = []
    victims: list[ReportedVictim] = []
    suspects: list[ReportedSuspect] = []


class MissingSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal, or a group of signals, that this node cannot give, and why."""

    signal: str
    reason: MissingReason


class RefusedField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A field of the node's policy that is not applied here, and why."""

    field: str
    reason: str | None = None


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What `cotenant check` says of the node: features that are not available, other agents, and whether the priority interface writes what the kernel does not take back."""  # noqa: E501

    missing: list[str] = []
    conflicts: list[str] = []
    irreversible: bool | None = None


class AgentCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the agent has counted since it started; `startedAt` tells one start from the next."""

    started_at: str
    evictions: int = 0
    restore_failures: int = 0
    irreversible_writes: int = 0


class DegradedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that asks for CPUs of its own, has none, and is served as LS."""

    name: str
    reason: str | None = None


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the agent found on its machine and says of itself: the mode in force, the priority interface, what Kata needs, its check, what is wrong now (absent: not looked at)."""  # noqa: E501

    mode: Mode | None = None
    slo_revision: str | None = None
    priority_interface: str | None = None
    kata: dict[str, Any] | None = None
    refused_fields: list[RefusedField | str] = []
    check: NodeCheck | None = None
    counts: AgentCounts | None = None
    problems: list[str] = []
    workload_types: list[str] = []
    degraded_pods: list[DegradedPod] = []


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A condition in Kubernetes' usual form."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None
    observed_generation: int | None = None


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One node in the summary of all nodes."""

    name: str
    interference_level: Ratio | None = None
    bucket: Bucket | None = None
    hard: list[HardLimit] = []
    detections: list[DetectionName] = []
    observed_at: str | None = None
    expires_at: str | None = None


class ReportSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The node that the report is about; absent in the object named `cluster`."""

    node_name: str | None = None


class ReportStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What was found. A reader treats a report past `expiresAt`, or without it, as if there were none."""

    observed_at: str | None = None
    expires_at: str | None = None
    interference_level: Ratio | None = None
    bucket: Bucket | None = None
    coverage: Ratio | None = None
    hard: list[HardLimit] = []
    detections: list[ReportedDetection] = []
    metrics: dict[str, float] = {}
    missing: list[MissingSignal] = []
    node_facts: NodeFacts | None = None
    nodes: list[ClusterNode] = []
    counts: dict[str, int] = {}
    conditions: list[Condition] = []


class NodeInterferenceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much the online work of a node is disturbed, by what and by whom. One per node, named like it; the object named `cluster` sums up all nodes."""  # noqa: E501

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: dict[str, Any] = {}
    spec: ReportSpec = ReportSpec()
    status: ReportStatus = ReportStatus()


def status_of(
    state: evaluation.Evaluation,
    metrics: dict[str, float],
    observed_at: str | None,
    expires_at: str | None,
    node_facts: NodeFacts | None = None,
) -> ReportStatus:
    """Return the status that publishes one evaluation."""
    return ReportStatus(
        observed_at=observed_at,
        expires_at=expires_at,
        interference_level=state.interference_level,
        bucket=state.bucket,
        coverage=state.coverage,
        hard=sorted(state.hard),
        detections=[_detection(name, found) for name, found in sorted(state.detections.items())],
        metrics=metrics,
        missing=[MissingSignal(signal=name, reason=why) for name, why in sorted(state.missing.items())],
        node_facts=node_facts,
    )


def _detection(name: DetectionName, found: evaluation.Detection) -> ReportedDetection:
    return ReportedDetection(
        type=name,
        triggered=found.triggered,
        index=found.index,
        signals=[
            ReportedSignal(name=signal, value=state.value, index=state.index, threshold=state.threshold)
            for signal, state in sorted(found.signals.items())
        ],
        victims=[ReportedVictim(name=victim.name, evidence=victim.evidence) for victim in found.victims],
        suspects=[
            ReportedSuspect(name=suspect.name, confidence=suspect.confidence, evidence=suspect.evidence)
            for suspect in found.suspects
        ],
    )
