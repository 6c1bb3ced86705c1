"""Why no BPF program runs here, in the closed list's words."""

import errno
import os

from cotenant.kernel import errors
from cotenant.model.sample import MissingReason

_REASONS: dict[int, MissingReason] = {errno.EPERM: "permission"}
"""EACCES is how the verifier refuses a program: no matter of permission."""


class BpfUnavailable(errors.KernelError):
    """BPF cannot be used, for a reason that does not pass by itself."""

    def __init__(self, reason: MissingReason, what: str) -> None:
        super().__init__(what)
        self.reason = reason


class BpfCallFailed(errors.KernelError):
    """libbpf or the kernel refused a call on a loaded object."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)} ({errno.errorcode.get(number, number)})")
        self.errno = number
        self.reason = _REASONS.get(number, "no_bpf")
