"""The errors of detection.

::

    units.errors.CotenantError
    └── DetectError
        ├── UnknownSignal    no such signal
        ├── BadRules         a rules file that is refused, with every problem and its place
        │   └── UnreadableRules
        └── BadSamples       a line that is not a sample
            └── TornSamples  half a line at the end
"""

import dataclasses
from collections.abc import Sequence

from cotenant.units import errors


class DetectError(errors.CotenantError):
    """Something about rules or samples that a person can mend."""


class UnknownSignal(DetectError):
    """No such signal; ``nearest`` is the one most like it, or None."""

    def __init__(self, name: str, nearest: str | None) -> None:
        self.name = name
        self.nearest = nearest
        super().__init__(f"unknown signal {name!r}" + (f"; did you mean {nearest!r}?" if nearest else ""))


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a rules file: where, at which key, what, and the nearest valid name, if any.

    ``line`` 0: the file as a whole.
    """

    file: str
    line: int
    key: str
    message: str
    nearest: str | None = None

    def __str__(self) -> str:
        place = (f"{self.file}:{self.line}: " if self.line else f"{self.file}: ") + (
            f"{self.key}: " if self.key else ""
        )
        return place + self.message + (f"; did you mean {self.nearest!r}?" if self.nearest else "")


class BadRules(DetectError):
    """A rules file that is refused."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")


class UnreadableRules(BadRules):
    """A rules file that cannot be read at all."""


class BadSamples(DetectError):
    """A line of a file of samples that is not a sample."""


class TornSamples(BadSamples):
    """The last line of a file of samples is only half there; everything before it was taken."""

    exit_status = 3
