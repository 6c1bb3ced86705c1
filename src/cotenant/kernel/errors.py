"""What can go wrong with a kernel file, and which reason of the closed list it gives to an unknown value.

::

    CotenantError
    └── KernelError
        ├── FileError        a call on a path failed: path and errno
        └── MalformedFile    the path was read, and its text is not what this kernel file holds
"""

import errno
import os

from cotenant.model.sample import MissingReason
from cotenant.units import errors

GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ENXIO, errno.ESRCH})
"""Never there, or removed: an open descriptor of a removed group or device answers ENODEV."""

_REASONS: dict[int, MissingReason] = {
    **dict.fromkeys(GONE, "gone"),
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EOPNOTSUPP: "unsupported",
    errno.ENOSYS: "unsupported",
}


class KernelError(errors.CotenantError):
    """The root of this layer's errors."""

    reason: MissingReason = "io_error"


class FileError(KernelError):
    """A call on a path failed."""

    def __init__(self, path: str, number: int) -> None:
        super().__init__(f"{path}: {os.strerror(number)} ({errno.errorcode.get(number, number)})")
        self.path = path
        self.errno = number
        self.reason = _REASONS.get(number, "io_error")

    @property
    def gone(self) -> bool:
        """True when the file is not there, or what it described was removed after it was opened."""
        return self.errno in GONE


class MalformedFile(KernelError):
    """The text of a file is not what the kernel writes there."""

    reason = "malformed"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path
