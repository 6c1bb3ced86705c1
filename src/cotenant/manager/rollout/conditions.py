"""A rollout's state as conditions, for ``kubectl wait``. Pure."""

from collections.abc import Sequence
from typing import Literal

from cotenant.api import timestamp
from cotenant.api.report import Condition
from cotenant.api.rollout import Phase, Stop

COMPLETE = "Complete"
STOPPED = "Stopped"


def of(
    phase: Phase, message: str, stopped: Stop | None, held: Sequence[Condition], wall: float, generation: int
) -> list[Condition]:
    """Return the conditions; ``held`` are those there are, whose time stays while their status does."""
    since = {(one.type, one.status): one.last_transition_time for one in held}

    def condition(kind: str, true: bool, reason: str, text: str) -> Condition:
        status: Literal["True", "False"] = "True" if true else "False"
        return Condition(
            type=kind,
            status=status,
            reason=reason,
            message=text,
            last_transition_time=since.get((kind, status)) or timestamp.render(wall),
            observed_generation=generation or None,
        )

    return [
        condition(COMPLETE, phase == "Completed", phase, message if phase == "Completed" else ""),
        condition(
            STOPPED,
            stopped is not None,
            stopped.reason if stopped is not None else "NotStopped",
            stopped.message if stopped is not None else "",
        ),
    ]
