"""What each node uses, added up from its samples between two tables for the manager.

Kept only while somebody reads: without a reader a sample costs nothing here.
"""

from cotenant.api import usage
from cotenant.model.sample import Cgroup, Sample


class _PodSum:
    __slots__ = ("known", "memory_bytes", "millicores", "name", "offline", "seen")

    def __init__(self, name: str) -> None:
        self.name = name
        self.offline = False
        self.clear()

    def clear(self) -> None:
        self.seen = self.known = 0
        self.millicores = 0.0
        self.memory_bytes: int | None = None

    def row(self) -> usage.PodRow:
        return usage.PodRow(_mean(self.millicores, self.known), self.memory_bytes, self.offline)


class _NodeSum:
    __slots__ = ("available_ratio", "groups", "known", "millicores", "seen")

    def __init__(self) -> None:
        self.groups: dict[str, _PodSum | None] = {}
        """By path; None for a group that is no pod's, so that this is told once and not in each sample."""
        self.clear()

    def clear(self) -> None:
        self.seen = self.known = 0
        self.millicores = 0.0
        self.available_ratio: float | None = None

    def take(self, taken: Sample) -> None:
        self.seen += 1
        capacity = (taken.cpu.online or 0) * 1000
        if capacity and taken.cpu.used_ratio is not None:
            self.millicores += taken.cpu.used_ratio * capacity
            self.known += 1
        if taken.memory.available_ratio is not None:
            self.available_ratio = taken.memory.available_ratio
        groups = self.groups
        for group in taken.cgroups:
            path = group.path
            if path not in groups:
                groups[path] = _PodSum(group.name or "") if is_pod(group) else None
            pod = groups[path]
            if pod is None:
                continue
            pod.seen += 1
            used = group.cpu_used_ratio
            if used is not None and capacity:
                pod.millicores += used * capacity
                pod.known += 1
            held = group.memory_anon_bytes
            if held is None:
                held = group.memory_bytes
            if held is not None:
                pod.memory_bytes = held
            pod.offline = group.class_ == "offline"

    def roll(self) -> usage.Row:
        """Return the means, None where no sample knew, and begin anew."""
        pods = [pod for pod in self.groups.values() if pod is not None and pod.seen]
        row = usage.Row(
            cpu_millicores=_mean(self.millicores, self.known),
            memory_used_ratio=None if self.available_ratio is None else 1 - self.available_ratio,
            pods={pod.name: pod.row() for pod in pods},
        )
        # A group that was not there is forgotten; one that is no pod's may be named later, when its pod is known.
        self.groups = {path: pod for path, pod in self.groups.items() if pod is not None and pod.seen}
        for pod in pods:
            pod.clear()
        self.clear()
        return row


def _mean(total: float, known: int) -> float | None:
    return round(total / known, 1) if known else None


def is_pod(group: Cgroup) -> bool:
    """Return whether a group is a pod's: named ``namespace/pod``, where others are named by their path."""
    return group.name is not None and group.name != group.path and group.name.count("/") == 1


class Tally:
    """The sums of one reader."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeSum] = {}

    def take(self, node: str, taken: Sample) -> None:
        """Add a node's sample."""
        held = self._nodes.get(node)
        if held is None:
            held = self._nodes[node] = _NodeSum()
        held.take(taken)

    def roll(self) -> dict[str, usage.Row]:
        """Return the table since the last one, and start the next; a node that was silent is forgotten."""
        self._nodes = {name: held for name, held in self._nodes.items() if held.seen}
        return {name: held.roll() for name, held in self._nodes.items()}
