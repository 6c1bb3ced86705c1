"""CPU that quotas of ours keep from offline work: the throttled time of groups whose quota file we hold."""

from collections.abc import Iterable, Mapping

from cotenant.act import cgroup
from cotenant.model.snapshot import Snapshot


class Withheld:
    """Differences of the groups' throttled time from one round to the next."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._at_s: float | None = None

    def of(self, snapshot: Snapshot, now: float) -> dict[str, float] | None:
        """Return millicores by path, of each offline group and the directory of all; None at the first round.

        ``now`` is a monotonic clock. It is the time that tasks ready to run did not, summed over CPUs.
        """
        found = dict(_throttled(snapshot))
        seconds = None if self._at_s is None else now - self._at_s
        before, self._before, self._at_s = self._before, found, now
        if not seconds or seconds <= 0:
            return None
        return {path: max(t - before[path], 0) / 1e6 / seconds for path, t in found.items() if path in before}


def by_group(snapshot: Snapshot, withheld: Mapping[str, float], used: Mapping[str, float]) -> dict[str, float]:
    """Return what each offline group lost to quotas that we hold; that of the directory by what each used.

    A group under a quota of its owner alone lost nothing to us.
    """
    groups = [group.path for group in cgroup.offline_groups(snapshot)]
    found = {path: withheld.get(path, 0.0) if _is_ours(snapshot, path) else 0.0 for path in groups}
    directory = snapshot.qos_paths.get("BestEffort")
    shared = withheld.get(directory, 0.0) if directory and _is_ours(snapshot, directory) else 0.0
    inside = [path for path in groups if directory and path.startswith(f"{directory}/")]
    running = sum(used.get(path, 0.0) for path in inside)
    for path in inside:
        share = used.get(path, 0.0) / running if running > 0 else 1 / len(inside)
        found[path] += shared * share
    return found


def _is_ours(snapshot: Snapshot, path: str) -> bool:
    return cgroup.quota_path(snapshot, path) in snapshot.journal


def _throttled(snapshot: Snapshot) -> Iterable[tuple[str, int]]:
    """Yield each offline group, and the directory of all, with its throttled time in nanoseconds."""
    directory = snapshot.qos_paths.get("BestEffort")
    groups = [group.path for group in cgroup.offline_groups(snapshot)]
    for group in dict.fromkeys([*([directory] if directory else []), *groups]):
        values = cgroup.cpu_statistics(snapshot, group)
        for key, factor in (("throttled_time", 1), ("throttled_usec", 1000)):
            if key in values:
                yield group, values[key] * factor
