"""What is wrong with something that came from outside.

::

    units.errors.CotenantError
    └── ApiError
        ├── BadRequest      the body of a request cannot be answered
        ├── BadFile         a file of objects cannot be read
        └── exposition.BadExposition, exposition.BadSelector
"""

from cotenant.units.errors import CotenantError


class ApiError(CotenantError):
    """Something from outside that is not what its kind says."""


class BadRequest(ApiError):
    """A request body that cannot be answered; the text says which place is wrong."""


class BadFile(ApiError):
    """A file of objects that cannot be read; the text names the file and the remedy."""
