"""Events that measuring left out, with the reason, so that counts which are too low say so."""

import dataclasses
from typing import Literal

LossReason = Literal["no_room", "unseen", "recursion"]
"""``no_room``: the table was full. ``unseen``: no program was run when it began or ended, by its other end's account.
``recursion``: the kernel skipped a program that was already running on that CPU; most of these are ``unseen`` too."""


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """How much one eBPF object missed for one reason, since it was loaded."""

    program: str
    reason: LossReason
    events: int
