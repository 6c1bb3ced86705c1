"""What the agent has done, and what came of it."""

import collections
import dataclasses

from cotenant.model.enforcement import Contest
from cotenant.model.snapshot import Place


@dataclasses.dataclass(slots=True)
class Status:
    """What the agent shows of itself."""

    rounds: int = 0
    round_failures: int = 0
    failing_rounds: int = 0
    """Failed without one in between that did not."""
    writes: int = 0
    late_ticks: int = 0
    conflict: str = ""
    outcomes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    planned: int | None = None
    """Items of the last plan; None while none is made."""
    notices: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    contests: tuple[Contest, ...] = ()
    left_to_others: frozenset[Place] = frozenset()
    """Where suppression writes nothing, since somebody else keeps writing there."""
