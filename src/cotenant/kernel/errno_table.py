"""What a refusal of the kernel means, in one table: what to report, and when it makes sense to try again."""

import dataclasses
import errno
from typing import Literal

State = Literal["gone", "busy", "refused", "denied", "failed"]
Again = Literal["next_tick", "soon", "new_value", "in_a_minute"]


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What an errno means for one plan item.

    ``again``: ``next_tick`` whenever the plan asks again; ``soon`` at the earliest after 10 s, since groups beside it
    change; ``new_value`` only for another value or another directory; ``in_a_minute`` at the earliest after 60 s, since
    a person has to change something.
    """

    state: State
    again: Again
    meaning: str


GONE = Decision("gone", "next_tick", "the group, device or task is no longer there")
NO_FILE = Decision("refused", "new_value", "this kernel has no such file")
BUSY = Decision("busy", "next_tick", "in use; tried again a few times")
REFUSED = Decision("refused", "new_value", "the kernel does not accept this value here")
UNFIT = Decision(
    "refused", "soon", "the kernel does not accept this value beside those of the groups around and inside"
)
UNSUPPORTED = Decision("refused", "new_value", "this kernel does not support it")
FULL = Decision("refused", "in_a_minute", "the kernel has no more room for it")
DENIED = Decision("denied", "in_a_minute", "not permitted: the file system is read-only or a capability is missing")
FAILED = Decision("failed", "in_a_minute", "the kernel failed")

TABLE: dict[int, Decision] = {
    errno.ENOENT: GONE,
    errno.ENODEV: GONE,
    errno.ENXIO: GONE,
    errno.ESRCH: GONE,
    errno.ENOTDIR: GONE,
    errno.EBUSY: BUSY,
    errno.EAGAIN: BUSY,
    errno.EINTR: BUSY,
    errno.ENOTEMPTY: BUSY,
    errno.EINVAL: REFUSED,
    errno.ERANGE: REFUSED,
    errno.EEXIST: REFUSED,
    errno.ELOOP: REFUSED,
    errno.E2BIG: REFUSED,
    errno.EOPNOTSUPP: UNSUPPORTED,
    errno.ENOSYS: UNSUPPORTED,
    errno.ENOSPC: FULL,
    errno.ENOMEM: FAILED,
    errno.EIO: FAILED,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.EROFS: DENIED,
}

_BY_FILE: dict[tuple[str, int], Decision] = {
    # A value that the next moment may accept: what is around or inside the group, or beside the file, has to fit.
    **{
        (name, errno.EINVAL): UNFIT
        for name in (
            "cpu.cfs_quota_us",
            "cpu.cfs_burst_us",
            "cpu.max",
            "cpu.max.burst",
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
        )
    },
    # v1: a CPU set outside its parent's, not a matter of permission; and no CPUs for a group that has tasks.
    **{
        (name, number): UNFIT
        for name in ("cpuset.cpus", "cpuset.mems")
        for number in (errno.EACCES, errno.ENOSPC, errno.EINVAL)
    },
    # openEuler: the sysctl vm.memcg_qos_enable is off.
    ("memory.qos_level", errno.EACCES): Decision("refused", "in_a_minute", "vm.memcg_qos_enable is off"),
}


def decide(number: int, file: str) -> Decision:
    """Return what an errno means when a file of this name answers it; an errno that is not listed is a failure."""
    return _BY_FILE.get((file, number)) or TABLE.get(number, FAILED)
