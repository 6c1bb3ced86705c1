"""What was refused and when it makes sense to try again, so that nothing is tried or reported each second."""

import dataclasses

from cotenant.kernel import errno_table
from cotenant.units.clock import Clock

HELD_SECONDS: dict[errno_table.Again, float] = {"soon": 10.0, "in_a_minute": 60.0}
"""For how long a refused write is held; one that is not here is held until its value is another."""
HELD_MAX = 10_000


@dataclasses.dataclass(slots=True)
class _Refusal:
    value: str | None
    inode: tuple[int, int]
    until: float | None


class Refusals:
    """Refused writes by path; another value, or another directory of that name, is not held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, _Refusal] = {}

    def hold(self, path: str, value: str | None, inode: tuple[int, int], decision: errno_table.Decision) -> None:
        """Hold a write back for as long as the decision says."""
        if decision.again == "next_tick":
            return
        if len(self._held) >= HELD_MAX:
            self._held.clear()
        seconds = HELD_SECONDS.get(decision.again)
        until = None if seconds is None else self._clock.monotonic() + seconds
        self._held[path] = _Refusal(value, inode, until)

    def __contains__(self, path: str) -> bool:
        """Return whether anything is known of a path; :meth:`is_held` says whether it still counts."""
        return path in self._held

    def is_held(self, path: str, value: str | None, inode: tuple[int, int]) -> bool:
        """Return whether this write was refused and nothing has changed since."""
        hold = self._held.get(path)
        if hold is None or hold.value != value or hold.inode != inode:
            return False
        return hold.until is None or self._clock.monotonic() < hold.until

    def release(self, path: str) -> None:
        """Forget a refusal: the file was written, or is gone."""
        self._held.pop(path, None)

    def written(self, path: str) -> None:
        """Forget the refusals of this file, and of the same file in groups around and inside: what they met is past."""
        group, _, name = path.rpartition("/")
        for other in [other for other in self._held if other.endswith(f"/{name}")]:
            place = other.rpartition("/")[0]
            if f"{place}/".startswith(f"{group}/") or f"{group}/".startswith(f"{place}/"):
                del self._held[other]
