"""A rollout's state as conditions, for ``kubectl wait``. Pure."""

from collections.abc import Sequence
from typing import Literal

from cotenant.api import conditions
from cotenant.api.report import Condition
from cotenant.api.rollout import Phase, Stop

COMPLETE = "Complete"
STOPPED = "Stopped"


def of(
    phase: Phase, message: str, stopped: Stop | None, held: Sequence[Condition], wall: float, generation: int
) -> list[Condition]:
    """Return the conditions; ``held`` are those there are, whose time stays while their status does."""

    def condition(kind: str, true: bool, reason: str, text: str) -> Condition:
        status: Literal["True", "False"] = "True" if true else "False"
        return Condition(
            type=kind,
            status=status,
            reason=reason,
            message=text,
            observed_generation=generation or None,
        )

    new = [
        condition(COMPLETE, phase == "Completed", phase, message if phase == "Completed" else ""),
        condition(
            STOPPED,
            stopped is not None,
            stopped.reason if stopped is not None else "NotStopped",
            stopped.message if stopped is not None else "",
        ),
    ]
    return conditions.dated(new, held, wall)
