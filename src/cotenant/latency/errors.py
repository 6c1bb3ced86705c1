"""What can go wrong with a service's latency that a person can mend.

::

    CotenantError
    └── LatencyError
        ├── BadSource       a source is not described as it must be
        └── Unreadable      a source does not answer, or not with what was asked for
            ├── Refused     it answers with another status than 200
            ├── TooLarge    its answer is larger than what is read: ask for less
            └── NothingFound  it answers that there is nothing
"""

from cotenant.units.errors import CotenantError


class LatencyError(CotenantError):
    """The root of this layer's errors."""


class BadSource(LatencyError):
    """A source of latency is not described as it must be."""


class Unreadable(LatencyError):
    """A source does not answer in time, or not with what was asked for."""


class Refused(Unreadable):
    """A source answers with another status than 200; ``wait_seconds``: after what time to ask again, if it says."""

    def __init__(self, text: str, status: int, wait_seconds: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.wait_seconds = wait_seconds


class TooLarge(Unreadable):
    """A source's answer is larger than what is read of one."""


class NothingFound(Unreadable):
    """A source answers that what was asked for is not there."""
