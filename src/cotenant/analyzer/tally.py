"""What each node uses, added up from its samples between two tables for the manager.

Kept only while somebody reads: without a reader a sample costs nothing here.
"""

from cotenant.api import usage
from cotenant.model.sample import Cgroup, Sample


class _PodSum:
    __slots__ = ("known", "memory_bytes", "millicores", "offline")

    def __init__(self) -> None:
        self.millicores = 0.0
        self.known = 0
        self.memory_bytes: int | None = None
        self.offline = False


class _NodeSum:
    __slots__ = ("available_ratio", "known", "millicores", "pods")

    def __init__(self) -> None:
        self.millicores = 0.0
        self.known = 0
        self.available_ratio: float | None = None
        self.pods: dict[str, _PodSum] = {}

    def take(self, taken: Sample) -> None:
        online = taken.cpu.online
        if online is not None and taken.cpu.used_ratio is not None:
            self.millicores += taken.cpu.used_ratio * online * 1000
            self.known += 1
        if taken.memory.available_ratio is not None:
            self.available_ratio = taken.memory.available_ratio
        for group in taken.cgroups:
            if not is_pod(group):
                continue
            pod = self.pods.get(group.name or "")
            if pod is None:
                pod = self.pods[group.name or ""] = _PodSum()
            if online is not None and group.cpu_used_ratio is not None:
                pod.millicores += group.cpu_used_ratio * online * 1000
                pod.known += 1
            anon_bytes = group.memory_anon_bytes
            memory_bytes = group.memory_bytes if anon_bytes is None else anon_bytes
            if memory_bytes is not None:
                pod.memory_bytes = memory_bytes
            pod.offline = group.class_ == "offline"

    def row(self) -> usage.Row:
        """Return the means; None where no sample knew."""
        return usage.Row(
            cpu_millicores=round(self.millicores / self.known, 1) if self.known else None,
            memory_used_ratio=None if self.available_ratio is None else 1 - self.available_ratio,
            pods={
                name: usage.PodRow(
                    round(pod.millicores / pod.known, 1) if pod.known else None, pod.memory_bytes, pod.offline
                )
                for name, pod in self.pods.items()
            },
        )


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
        """Return the table since the last one, and start the next."""
        nodes, self._nodes = self._nodes, {}
        return {name: held.row() for name, held in nodes.items()}
