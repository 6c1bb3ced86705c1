"""What went wrong, as one line on stderr and an exit status."""

import errno
import os
import sys

from cotenant.units import errors

Failure = errors.CotenantError | OSError | MemoryError | UnicodeEncodeError
FAILURES = (errors.CotenantError, OSError, MemoryError, UnicodeEncodeError)


def tell(error: Failure) -> int:
    """Write the line, and return the status that goes with it."""
    text, status = _told(error)
    sys.stderr.write(f"cotenant: {text}\n")
    return status


def _told(error: Failure) -> tuple[str, int]:
    if isinstance(error, errors.CotenantError):
        return str(error), error.exit_status
    if isinstance(error, MemoryError):
        return "not enough memory: raise the limit of this process, or end something else", 2
    if isinstance(error, UnicodeEncodeError):  # a name of the command line that goes where only text can
        return f"{error.object[:80]!r} is not UTF-8 text; write it in UTF-8", 2
    # A file, an address or a shortage that no command has words of its own for.
    place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return f"{place}{error.strerror or error}{_remedy(error)}", 2


def _remedy(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "; run as root, or name another place"
    return "; free some space there, or name another place" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
