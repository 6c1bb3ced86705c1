"""What a person can mend of the analyzer.

::

    units.errors.CotenantError
    └── AnalyzerError
        ├── BadReportsFile    the file for reports cannot be written
        └── BadListen         an address that cannot be had, or plaintext where others can reach it
"""

from cotenant.units.errors import CotenantError


class AnalyzerError(CotenantError):
    """Something that keeps the analyzer from starting."""


class BadListen(AnalyzerError):
    """The address cannot be had, or is beyond loopback without TLS: samples say who runs what."""


class BadReportsFile(AnalyzerError):
    """The file that reports should go to cannot be written."""
