"""A limit that may be "no limit", without a magic number."""

import dataclasses
import functools
from typing import Self


@functools.total_ordering
@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A bound in the file's own unit, or no bound (``value`` None: ``max`` on v2, -1 on v1).

    Limits compare by tightness: a smaller bound is less than a larger one, and every bound is less than no bound.
    """

    value: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the limit that a cgroup file holds: ``max`` and any negative number mean none.

        :raises ValueError: if the text is neither.
        """
        word = text.strip()
        if word == "max":
            return cls(None)
        value = int(word)
        return cls(None if value < 0 else value)

    @property
    def unlimited(self) -> bool:
        return self.value is None

    def v1(self) -> str:
        """Return the text for a v1 file, where -1 is no limit."""
        return "-1" if self.value is None else str(self.value)

    def v2(self) -> str:
        """Return the text for a v2 file, where ``max`` is no limit."""
        return "max" if self.value is None else str(self.value)

    def __lt__(self, other: "Limit") -> bool:
        if self.value is None:
            return False
        return other.value is None or self.value < other.value


NONE = Limit(None)
"""No limit."""
