"""The root of every error that a person is meant to read.

::

    CotenantError            exit status 2
    ├── units.cpulist.BadCpuList, units.quantity.BadQuantity
    ├── kernel.errors.KernelError …
    └── detect.rules.BadRules …

Each layer has its own small tree below it. The text of an error is one line: place, what is wrong, remedy.
"""

from typing import ClassVar


class CotenantError(Exception):
    """Something a person can mend. The command line prints it as one line and exits with :attr:`exit_status`."""

    exit_status: ClassVar[int] = 2
