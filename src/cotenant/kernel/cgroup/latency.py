"""Latencies that a tracer saw, by group: a tracer knows inodes, the sample knows paths."""

from collections.abc import Callable, Collection, Mapping

from cotenant.kernel.cgroup import tree
from cotenant.kernel.cgroup.classes import nearest
from cotenant.kernel.tracing import GroupTrace
from cotenant.model.sample import MissingReason
from cotenant.units.histogram import Histogram

LOOK_AGAIN_SECONDS = 10.0
"""An inode that nothing has (a group that was removed) makes us look no more often than this."""


class Latencies:
    """One hierarchy's inodes, looked up when a tracer names one that is new."""

    def __init__(self, top: str | None, latency_of: Callable[[GroupTrace], Histogram]) -> None:
        self._top = top
        self._latency_of = latency_of
        self._paths: dict[int, str] = {}
        self._looked_s: float | None = None

    def by_group(
        self, traced: Mapping[int, GroupTrace] | MissingReason, groups: Collection[str], now_s: float
    ) -> Mapping[str, Histogram] | MissingReason:
        """Return each sampled group's latencies, those of all groups below it included; or why there are none."""
        if isinstance(traced, str):
            return traced
        if self._top is None:
            return "unsupported"
        if traced.keys() - self._paths.keys() and (
            self._looked_s is None or now_s - self._looked_s > LOOK_AGAIN_SECONDS
        ):
            self._paths, self._looked_s = tree.inodes(self._top), now_s
        known = dict.fromkeys(groups)
        merged: dict[str, Histogram] = {}
        for inode, seen in traced.items():
            path = self._paths.get(inode)
            if path is not None and path not in known:
                path = nearest(path, known)
            while path is not None:
                merged.setdefault(path, Histogram()).merge(self._latency_of(seen))
                path = nearest(path, known)
        return merged
