"""What can go wrong on one host that a person can mend.

::

    CotenantError
    └── LocalError
        ├── PortInUse, ListenRefused, BadListenAddress
        ├── BadDataDirectory, BadToken
        ├── GroupError       a managed group cannot be made, written or named
        └── CannotMeasure    a verification cannot be started here
"""

from cotenant.units.errors import CotenantError


class LocalError(CotenantError):
    """The root of this layer's errors."""


class PortInUse(LocalError):
    """Another process listens there."""


class ListenRefused(LocalError):
    """Listening beyond loopback without a token."""


class BadListenAddress(LocalError):
    """The address cannot be listened on."""


class BadDataDirectory(LocalError):
    """The data directory cannot be made or written."""


class BadToken(LocalError):
    """The token file cannot be read, or holds too little."""


class GroupError(LocalError):
    """A managed group cannot be made, written or named."""


class CannotMeasure(LocalError):
    """A verification cannot be started here."""
