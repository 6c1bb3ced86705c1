"""Which pods are turned away: classes and priorities that do not go together, and what may not change any more.

| class | bands |
|---|---|
| LSE, LSR | prod; the CPUs asked for are a whole number, and not none |
| LS | prod, mid |
| BE | mid, batch, free |
| SYSTEM | prod, and the priorities of the system |

A pod outside every band, or without a priority, counts as its class's default. A pod without the label is not checked.
"""

from collections.abc import Callable, Mapping
from typing import Any

from cotenant.api import unstructured
from cotenant.api.koordinator.names import SKIP_VALIDATION_LABEL
from cotenant.manager.webhook import translation
from cotenant.model import pod as pods
from cotenant.units import quantity

Pod = Mapping[str, Any]

BANDS: dict[pods.QosClass, frozenset[pods.PriorityBand]] = {
    "LSE": frozenset({"prod"}),
    "LSR": frozenset({"prod"}),
    "LS": frozenset({"prod", "mid"}),
    "BE": frozenset({"mid", "batch", "free"}),
    "SYSTEM": frozenset({"prod"}),
}
IMMUTABLE_LABELS = (pods.QOS_LABEL, pods.PRIORITY_CLASS_LABEL, pods.SUB_PRIORITY_LABEL)
"""What a running pod keeps."""
WHOLE_CORES: frozenset[pods.QosClass] = frozenset({"LSE", "LSR"})
_BATCH = (*pods.BATCH_CPU, *pods.BATCH_MEMORY)
FEW_MILLICORES = 20
"""A batch-cpu below this is taken for a count of cores."""


def problems(pod: Pod, before: Pod | None = None) -> list[str]:
    """Return why a pod is turned away; empty where it is not.

    ``before``: the pod as it was, on an update; then what was wrong with it already is let be.
    """
    if _labels(pod).get(SKIP_VALIDATION_LABEL) == "true":
        return []
    if before is None:
        return _wrong(pod)
    if unstructured.metadata(pod).get("deletionTimestamp"):
        return []
    known = set(_wrong(before))
    return _changed(pod, before) + [problem for problem in _wrong(pod) if problem not in known]


def warnings(pod: Pod) -> list[str]:
    """Return what the pod's author is told without being turned away."""
    found = []
    for place, container in translation.containers_of(pod):
        for side in ("requests", "limits"):
            amounts = (container.get("resources") or {}).get(side) or {}
            for name in pods.BATCH_CPU:
                if name in amounts and 0 < (_amount(amounts[name], quantity.whole) or 0) < FEW_MILLICORES:
                    found.append(
                        f"{place}.resources.{side}[{name}]: {amounts[name]} is so many thousandths of a core;"
                        " write 8000 for 8 cores"
                    )
    native = any(
        _amount(((container.get("resources") or {}).get("requests") or {}).get(name, 0), quantity.millicores) != 0
        for _, container in translation.containers_of(pod)
        for name in translation.NATIVE
    )
    if _qos(pod) == "BE" and native:
        found.append(
            "spec.containers: a BE pod with native cpu or memory takes them from online pods; have a"
            " ClusterColocationProfile translate them, or ask for kubernetes.io/batch-cpu and batch-memory"
        )
    return found


def _wrong(pod: Pod) -> list[str]:
    found = [*_wrong_pair(pod), *_wrong_cores(pod)]
    if _qos(pod) != "BE" and _asks_batch(pod):
        found.append(
            f"metadata.labels[{pods.QOS_LABEL}]: a pod that asks for batch-cpu or batch-memory must be BE,"
            f" not {_labels(pod).get(pods.QOS_LABEL) or 'without a class'}"
        )
    return found


def _wrong_pair(pod: Pod) -> list[str]:
    qos = _qos(pod)
    if qos is None:
        return []
    given = _labels(pod).get(pods.PRIORITY_CLASS_LABEL)
    band = pods.band(_labels(pod), _spec(pod).get("priority"), qos)
    if band is None:
        return [
            f"metadata.labels[{pods.PRIORITY_CLASS_LABEL}]: {given!r}:"
            " give koord-prod, koord-mid, koord-batch or koord-free"
        ]
    if band in BANDS[qos]:
        return []
    allowed = " or ".join(f"koord-{one}" for one in ("prod", "mid", "batch", "free") if one in BANDS[qos])
    where = "the label" if given is not None else f"priority {_spec(pod).get('priority')}"
    return [f"metadata.labels[{pods.QOS_LABEL}]: {qos} does not go with koord-{band} ({where}); it goes with {allowed}"]


def _wrong_cores(pod: Pod) -> list[str]:
    qos = _qos(pod)
    if qos not in WHOLE_CORES:
        return []
    millicores = request_millicores(pod)
    place = "spec.containers[*].resources.requests.cpu"
    if millicores == 0:
        return [f"{place}: required: an {qos} pod gets whole cores of its own and must say how many"]
    if millicores is None or millicores % 1000:
        amount = "not a quantity" if millicores is None else f"{millicores}m"
        return [f"{place}: {amount} in all: an {qos} pod gets whole cores of its own; ask for a whole number"]
    return []


def _changed(pod: Pod, before: Pod) -> list[str]:
    found = [
        f"metadata.labels[{label}]: may not change, from {_labels(before).get(label)!r} to {_labels(pod).get(label)!r};"
        " recreate the pod"
        for label in IMMUTABLE_LABELS
        if _labels(pod).get(label) != _labels(before).get(label)
    ]
    now, then = (_spec(one).get("priority") for one in (pod, before))
    if pods.band_of(now) != pods.band_of(then):
        found.append(f"spec.priority: may not change, from {then} to {now}; recreate the pod")
    return found


def request_millicores(pod: Pod) -> int | None:
    """Return the native CPU that a pod asks for, as Kubernetes adds it up; None where an amount is not a quantity."""
    of_pod = ((_spec(pod).get("resources") or {}).get("requests") or {}).get("cpu")
    if of_pod is not None:
        return _amount(of_pod, quantity.millicores)
    total = sidecars = largest_init = 0
    for place, container in translation.containers_of(pod):
        resources = container.get("resources") or {}
        value = (resources.get("requests") or {}).get("cpu", (resources.get("limits") or {}).get("cpu", 0))
        amount = _amount(value, quantity.millicores)
        if amount is None:
            return None
        if not place.startswith("spec.initContainers"):
            total += amount
        elif container.get("restartPolicy") == "Always":
            sidecars += amount
            largest_init = max(largest_init, sidecars)
        else:
            largest_init = max(largest_init, sidecars + amount)
    return max(total + sidecars, largest_init)


def _asks_batch(pod: Pod) -> bool:
    for _, container in translation.containers_of(pod):
        for side in ("requests", "limits"):
            amounts = (container.get("resources") or {}).get(side) or {}
            if any(_amount(amounts[name], quantity.whole) != 0 for name in _BATCH if name in amounts):
                return True
    return False


def _amount(value: Any, read: Callable[[Any], int]) -> int | None:
    try:
        return read(value)
    except quantity.BadQuantity:
        return None


def _labels(pod: Pod) -> Mapping[str, str]:
    return unstructured.labels(pod)


def _spec(pod: Pod) -> Mapping[str, Any]:
    return pod.get("spec") or {}


def _qos(pod: Pod) -> pods.QosClass | None:
    return pods.qos_class(_labels(pod).get(pods.QOS_LABEL))
