"""What protection costs offline work: the CPU that it got, and the CPU that a quota kept from it."""

from collections.abc import Iterable

from cotenant.act import cgroup
from cotenant.model.sample import Sample
from cotenant.model.snapshot import Snapshot
from cotenant.units.clock import Clock


class Outlay:
    """Differences of the groups' throttled time from one round to the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[str, int] = {}
        self._at_s: float | None = None

    def of(self, snapshot: Snapshot, sample: Sample) -> tuple[float | None, float | None]:
        """Return millicores delivered and withheld; None where that is not known (withheld: at the first round)."""
        ratio, online = sample.offline.cpu_used_ratio, sample.cpu.online
        delivered = None if ratio is None or online is None else ratio * online * 1000
        now, found = self._clock.monotonic(), dict(_throttled(snapshot))
        seconds = None if self._at_s is None else now - self._at_s
        grown = [max(t - self._before[path], 0) for path, t in found.items() if path in self._before]
        known = bool(seconds) and bool(grown)
        self._before, self._at_s = found, now
        return delivered, sum(grown) / 1e6 / seconds if known and seconds else None


def _throttled(snapshot: Snapshot) -> Iterable[tuple[str, int]]:
    """Yield each offline group, and the directory of all, with its throttled time in nanoseconds."""
    directory = snapshot.qos_paths.get("BestEffort")
    groups = [group.path for group in cgroup.offline_groups(snapshot)]
    for group in dict.fromkeys([*([directory] if directory else []), *groups]):
        path = snapshot.path("cpu", group, "cpu.stat")
        text = (snapshot.files.read(path) if path else None) or ""
        values = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        for key, factor in (("throttled_time", 1), ("throttled_usec", 1000)):
            if values.get(key, "").isdigit():
                yield group, int(values[key]) * factor
