"""Groups of pods and containers that the last list of pods does not know: when it is worth to ask for it again."""

from collections.abc import Iterator

from cotenant.model.snapshot import Snapshot

POD_ASKED_AT: tuple[float, ...] = (0.0,)
"""Seconds after its group was first seen: the kubelet lists a pod before it makes its group."""
CONTAINER_ASKED_AT: tuple[float, ...] = (0.0, 1.0, 3.0)
"""The kubelet learns of a container a moment after the runtime has made its group."""


class Newcomers:
    """Remembers since when each group is there without being listed, and how often was asked because of it.

    A pod's sandbox is never listed: after three times nobody asks for it any more.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int]] = {}

    def due(self, seen: Snapshot, now: float) -> bool:
        """Return whether a list of pods is due for a group that is new. ``now`` is a monotonic clock."""
        due, known = False, {}
        for path, moments in _unlisted(seen):
            since, asked = self._known.get(path, (now, 0))
            if asked < len(moments) and now - since >= moments[asked]:
                due, asked = True, asked + 1
            known[path] = since, asked
        self._known = known
        return due


def _unlisted(seen: Snapshot) -> Iterator[tuple[str, tuple[float, ...]]]:
    for group in seen.groups:
        if group.pod is None:
            yield group.path, POD_ASKED_AT
        elif group.pod.active:
            yield from ((child.path, CONTAINER_ASKED_AT) for child in group.containers if child.container is None)
