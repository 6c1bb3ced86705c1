"""Pods placed a moment ago count, although no sample shows them yet: or a burst of them piles up on the one calm node.

Each placement adds to its node's effective level what the pod is expected to use of it, and holds back nodes that got
more than the others of late. Both fade as the samples take over. A pod that was just asked about counts on the nodes
that were best for it until its placement is seen: kube-scheduler decides faster than it binds (its own calls are
limited to 50 a second), by seconds in a large burst. Pure: placements and times come in.
"""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence

from cotenant.api.objects import Node, Pod
from cotenant.scheduler import pods
from cotenant.units import quantity

FADE_SECONDS = 10.0
"""The analyzer's window: after it, what a pod does is in the mean that its node's level comes from."""
EVEN_PODS = 8.0
"""So many pods on each node count as no herd, whatever the differences between nodes."""
EVENNESS = 2.5
"""A full level's difference is outweighed by two fifths more pods than the mean, beyond those."""
FORGOTTEN_PODS = 0.05
EXPECTED_NODES = 4
"""Where more nodes than these are equally good for a pod, it is expected on none of them."""
MAX_EXPECTED = 20_000
DEFAULT_MILLICORES = 250
DEFAULT_BYTES = 200 << 20
"""What a pod without requests is taken for, as Volcano's estimator takes it."""
NODE_MILLICORES = 4000
NODE_BYTES = 16 << 30
"""A node whose capacity is not known."""
OFFLINE_SHARE = 1.0
ONLINE_SHARE = 0.5
"""Of what it asks for, offline work uses all at once; online work asks for its peak."""


def load_of(pod: Pod, node: Node | None) -> float:
    """Return the share of a node that a pod is expected to use, by the larger of processor and memory, in 0..1."""
    millicores = memory_bytes = 0
    for container in pod.spec.containers or ():
        requests = (container.resources and container.resources.requests) or {}
        millicores += _number(requests.get("cpu"), thousandths=True) or 0
        memory_bytes += _number(requests.get("memory")) or 0
    capacity = (node and node.status.allocatable) or {}
    of_cpu = (millicores or DEFAULT_MILLICORES) / (_number(capacity.get("cpu"), thousandths=True) or NODE_MILLICORES)
    of_memory = (memory_bytes or DEFAULT_BYTES) / (_number(capacity.get("memory")) or NODE_BYTES)
    return min(1.0, max(of_cpu, of_memory)) * (OFFLINE_SHARE if pods.is_offline(pod) else ONLINE_SHARE)


def _number(value: str | float | None, thousandths: bool = False) -> int | None:
    if value is None:
        return None
    try:
        return quantity.millicores(value) if thousandths else quantity.whole(value)
    except quantity.BadQuantity:
        return None


@dataclasses.dataclass(slots=True)
class _Recent:
    """What a node got, as of a time; fades from then on."""

    at: float
    count: float
    load: float


@dataclasses.dataclass(frozen=True, slots=True)
class _Expected:
    """A pod that will go to one of some nodes, with its load there; believed until a time."""

    until: float
    loads: Mapping[str, float]


class Herd:
    """The nodes that got pods of late, or are about to. Times are monotonic seconds."""

    def __init__(self, fade_seconds: float = FADE_SECONDS) -> None:
        self._fade_seconds = fade_seconds
        self._recent: dict[str, _Recent] = {}
        self._expected: collections.OrderedDict[str, _Expected] = collections.OrderedDict()
        self._ahead: dict[str, tuple[float, float]] = {}
        """Pods expected on a node, and their load."""

    def __len__(self) -> int:
        return len(self._recent)

    def expect(self, pod_uid: str, loads: Mapping[str, float], now: float) -> None:
        """Count a pod on the nodes that are best for it, in equal parts; ``loads`` is what it would use of each."""
        self.forget(pod_uid)
        if not pod_uid or not 0 < len(loads) <= EXPECTED_NODES:
            return
        self._expected[pod_uid] = _Expected(now + self._fade_seconds, loads)
        self._count_ahead(loads, 1.0 / len(loads))
        if len(self._expected) > MAX_EXPECTED:
            self.forget(next(iter(self._expected)))

    def placed(self, node: str, load: float, now: float) -> None:
        """Count a pod that was placed on a node."""
        known = self._recent.get(node)
        if known is None:
            self._recent[node] = _Recent(now, 1.0, load)
            return
        left = math.exp((known.at - now) / self._fade_seconds)
        known.at, known.count, known.load = now, known.count * left + 1.0, known.load * left + load

    def additions(self, names: Sequence[str], now: float) -> dict[str, float]:
        """Return what to add to the effective level of those of the nodes that got pods of late."""
        while self._expected and (first := next(iter(self._expected.items())))[1].until <= now:
            self.forget(first[0])
        if not self._recent and not self._ahead:
            return {}
        counted = dict(self._ahead)
        for name, recent in list(self._recent.items()):
            left = math.exp((recent.at - now) / self._fade_seconds)
            if recent.count * left < FORGOTTEN_PODS:
                del self._recent[name]
            else:
                count, load = counted.get(name, (0.0, 0.0))
                counted[name] = (count + recent.count * left, load + recent.load * left)
        here = {name: counted[name] for name in names if name in counted}
        if not here:
            return {}
        mean = sum(count for count, _ in here.values()) / len(names)
        scale = EVENNESS / (mean + EVEN_PODS)
        return {name: load + max(0.0, count - mean) * scale for name, (count, load) in here.items()}

    def forget(self, pod_uid: str) -> None:
        """Expect a pod no longer."""
        known = self._expected.pop(pod_uid, None)
        if known is not None:
            self._count_ahead(known.loads, -1.0 / len(known.loads))

    def _count_ahead(self, loads: Mapping[str, float], share: float) -> None:
        for name, load in loads.items():
            count, sum_of_loads = self._ahead.get(name, (0.0, 0.0))
            count += share
            if count < FORGOTTEN_PODS:
                self._ahead.pop(name, None)
            else:
                self._ahead[name] = (count, max(0.0, sum_of_loads + load * share))


def adjusted(names: Sequence[str], effective: Sequence[float], additions: dict[str, float]) -> list[float]:
    """Return the effective levels with the additions, at most 1."""
    more = additions.get
    return [min(1.0, level + more(name, 0.0)) for name, level in zip(names, effective, strict=True)]
