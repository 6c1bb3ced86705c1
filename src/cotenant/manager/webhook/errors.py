"""What keeps a request from being let through.

``CotenantError``
  ``Refused``      the object is turned away; the text is what its author reads
  ``Unprepared``   not enough is known to answer; the API server does what ``failurePolicy`` says
"""

from cotenant.units.errors import CotenantError


class Refused(CotenantError):
    """The object is turned away: what is wrong, where, and what to do."""


class Unprepared(CotenantError):
    """What the answer needs has not arrived yet."""
