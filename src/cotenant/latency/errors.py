"""What can go wrong with a service's latency that a person can mend.

::

    CotenantError
    └── LatencyError
        ├── BadSource       a source is not described as it must be
        └── Unreadable      a source does not answer, or not with what was asked for
"""

from cotenant.units.errors import CotenantError


class LatencyError(CotenantError):
    """The root of this layer's errors."""


class BadSource(LatencyError):
    """A source of latency is not described as it must be."""


class Unreadable(LatencyError):
    """A source does not answer in time, or not with what was asked for."""
