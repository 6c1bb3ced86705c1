"""What went wrong, as one line on stderr and an exit status."""

import os
import sys

from cotenant.units import errors

Failure = errors.CotenantError | OSError | MemoryError
FAILURES = (errors.CotenantError, OSError, MemoryError)


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
    # A file, an address or a shortage that no command has words of its own for.
    place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    remedy = "; run as root, or name another place" if isinstance(error, PermissionError) else ""
    return f"{place}{error.strerror or error}{remedy}", 2
