"""What becomes of one plan item."""

import dataclasses
from collections.abc import Callable
from typing import Literal

from cotenant.units.plan import PlanItem

State = Literal[
    "written", "planned", "same", "gone", "held", "refused", "busy", "denied", "failed", "not_taken", "left_out"
]
"""``held``: refused before, not tried again yet. ``not_taken``: accepted, but the file says something else.
``left_out``: not done because it must not be, or because nobody here can. ``planned``: would be written (dry run)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one plan item. ``detail`` is for a person, ``actual`` what the file said last."""

    item: PlanItem
    state: State
    detail: str = ""
    errno: int | None = None
    actual: str | None = None
    rewritten: bool = False
    """Somebody had replaced the value that we wrote before."""


EvictCallback = Callable[[PlanItem], Outcome]
