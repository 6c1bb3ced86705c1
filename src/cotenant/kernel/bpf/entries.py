"""The entries of a map of cumulative counters: what changed since the last read, and removal of those long idle."""

from collections.abc import Iterator

from cotenant.kernel.bpf.program import Map

IDLE_READS = 120
"""An entry that did not change for so many reads is removed: most likely its group or disk is gone."""


class Entries:
    """A map whose programs only ever add to its values, by the number that is its key."""

    def __init__(self, map_: Map, idle_reads: int = IDLE_READS) -> None:
        self._map = map_
        self._idle_reads = idle_reads
        self._old: dict[bytes, tuple[bytes, int]] = {}
        self._turn = 0

    def changed(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Yield key, value and the value before (None: it is new) of each entry that changed since the last call.

        :raises BpfCallFailed: if the map cannot be read.
        """
        self._turn += 1
        kept: dict[bytes, tuple[bytes, int]] = {}
        found = []
        for key, value in self._map.items():
            before = self._old.get(key)
            if before is not None and before[0] == value:
                if self._turn - before[1] < self._idle_reads:
                    kept[key] = before
                else:
                    self._map.delete(key)
                continue
            kept[key] = (value, self._turn)
            found.append((int.from_bytes(key, "little"), value, before[0] if before else None))
        self._old = kept
        yield from found
