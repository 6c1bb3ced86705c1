"""How kernels answer to writes of cgroup files, as a script: what is accepted, what it reads back, which errno refuses.

The same trials are replayed by ``cotenant verify kernel`` on scratch groups of a real node and by the tests on the
kernel double, so that both are held to one statement. A trial runs in an empty group of its own, ``.``; its other
groups are below it. Sources: kernel documentation and sources, and what was measured on 6.18; see docs/kernels.md.
"""

from typing import Literal

import msgspec

Flavour = Literal["mainline", "openeuler", "openeuler-multi", "anolis-bvt", "anolis-priority", "tencent"]
ALL: tuple[Flavour, ...] = ("mainline", "openeuler", "openeuler-multi", "anolis-bvt", "anolis-priority", "tencent")
Act = Literal["mkdir", "rmdir", "write", "read"]


class Step(msgspec.Struct, frozen=True):
    """One step of a trial. ``errno`` is the symbolic name of the refusal that is expected, None for success.

    A ``write`` with ``reads`` is read back afterwards; a ``read`` compares only. Several right answers are listed.
    """

    act: Act
    group: str
    file: str | None = None
    text: str | None = None
    errno: tuple[str, ...] | None = None
    reads: tuple[str, ...] | None = None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A statement about one file, tried on scratch groups. It is skipped where the file does not exist."""

    name: str
    version: Literal[1, 2]
    controller: str
    file: str
    flavours: tuple[Flavour, ...] = ALL
    measured: bool = False
    """Seen on a real kernel of ours; otherwise taken from sources or documentation."""
    cpus: int = 0
    """How many CPUs, from 0 on, the trial names."""
    steps: tuple[Step, ...]


def accepted(file: str, text: str, *reads: str, group: str = ".") -> Step:
    """Return the step of a write that succeeds and reads back as one of ``reads`` (default: as written)."""
    return Step("write", group, file, text, None, reads or (text,))


def refused(file: str, text: str, *errno: str, group: str = ".") -> Step:
    """Return the step of a write that is refused with one of these errnos."""
    return Step("write", group, file, text, errno)


def reads(file: str, *values: str, group: str = ".") -> Step:
    """Return the step of a read."""
    return Step("read", group, file, reads=values)


def group(name: str) -> Step:
    """Return the step that makes a group below the trial's."""
    return Step("mkdir", name)


def _integer_syntax(file: str) -> tuple[Step, ...]:
    """How every signed 64-bit file reads text: base 0, one trailing newline, nothing else around it."""
    return (
        *(refused(file, text, "EINVAL") for text in (" 0", "0 ", "0\n\n", "0 0", "text", "2147483648")),
        refused(file, "99999999999999999999", "ERANGE"),
        accepted(file, "0\n", "0"),
        accepted(file, "00", "0"),
        accepted(file, "0x0", "0"),
    )


def _qos_level(name: str, flavours: tuple[Flavour, ...], steps: tuple[Step, ...]) -> Trial:
    return Trial(name=name, version=1, controller="cpu", file="cpu.qos_level", flavours=flavours, steps=steps)


_QOS = "cpu.qos_level"
_OPENEULER: tuple[Trial, ...] = (
    _qos_level(
        "openEuler: only 0 and -1, and -1 stays",
        ("openeuler",),
        (
            reads(_QOS, "0"),
            *(refused(_QOS, text, "EINVAL") for text in ("1", "2", "-2")),
            *_integer_syntax(_QOS),
            accepted(_QOS, "-1"),
            accepted(_QOS, "-1"),
            refused(_QOS, "0", "EINVAL"),
        ),
    ),
    _qos_level(
        "openEuler multilevel: -2..2, and any level but 0 stays",
        ("openeuler-multi",),
        (
            *(refused(_QOS, text, "EINVAL") for text in ("3", "-3")),
            accepted(_QOS, "1"),
            *(refused(_QOS, text, "EINVAL") for text in ("2", "0", "-1")),
            accepted(_QOS, "1"),
        ),
    ),
    _qos_level(
        "openEuler: a child copies its parent, and a write reaches the subtree",
        ("openeuler", "openeuler-multi"),
        (
            group("before"),
            group("before/deep"),
            accepted(_QOS, "-1"),
            reads(_QOS, "-1", group="before"),
            reads(_QOS, "-1", group="before/deep"),
            group("after"),
            reads(_QOS, "-1", group="after"),
        ),
    ),
    Trial(
        name="openEuler: burst needs a quota and stays below it",
        version=1,
        controller="cpu",
        file="cpu.cfs_burst_us",
        flavours=("openeuler", "openeuler-multi"),
        steps=(
            refused("cpu.cfs_burst_us", "1000", "EINVAL"),
            accepted("cpu.cfs_quota_us", "20000"),
            accepted("cpu.cfs_burst_us", "20000"),
            refused("cpu.cfs_burst_us", "20001", "EINVAL"),
            accepted("cpu.cfs_quota_us", "-1"),
            reads("cpu.cfs_burst_us", "0"),
        ),
    ),
)

_BVT = "cpu.bvt_warp_ns"
_ANOLIS: tuple[Trial, ...] = tuple(
    Trial(
        name=f"Anolis generation 1, v{version}: any level to any level, copied by children, not pushed",
        version=version,
        controller="cpu",
        file=_BVT,
        flavours=("anolis-bvt",),
        steps=(
            group("before"),
            *(accepted(_BVT, text) for text in ("2", "-1", "1", "-2", "0")),
            *(refused(_BVT, text, "ERANGE") for text in ("3", "-3")),
            accepted(_BVT, "2"),
            reads(_BVT, "0", group="before"),
            group("after"),
            reads(_BVT, "2", group="after"),
            accepted(_BVT, "0"),
        ),
    )
    for version in (1, 2)
) + tuple(
    Trial(
        name=f"Anolis generation 2, v{version}: 1, 0 and -1",
        version=version,
        controller="cpu",
        file="cpu.priority",
        flavours=("anolis-priority",),
        steps=(
            *(accepted("cpu.priority", text) for text in ("1", "-1", "0")),
            *(refused("cpu.priority", text, "EINVAL", "ERANGE") for text in ("2", "-2")),
        ),
    )
    for version in (1, 2)
)

_OFFLINE = "cpu.offline"
_TENCENT: tuple[Trial, ...] = (
    Trial(
        name="TencentOS: any number is 1, reversible, copied by children, not pushed",
        version=1,
        controller="cpu",
        file=_OFFLINE,
        flavours=("tencent",),
        steps=(
            group("before"),
            refused(_OFFLINE, "-1", "EINVAL"),
            accepted(_OFFLINE, "7", "1"),
            reads(_OFFLINE, "0", group="before"),
            group("after"),
            reads(_OFFLINE, "1", group="after"),
            accepted(_OFFLINE, "0"),
        ),
    ),
)

_IDLE = "cpu.idle"
_SHARES = "cpu.shares"
_QUOTA = "cpu.cfs_quota_us"
_MAINLINE_V1: tuple[Trial, ...] = (
    Trial(
        name="v1: an idle group takes no shares, and leaving idle forgets them",
        version=1,
        controller="cpu",
        file=_IDLE,
        measured=True,
        steps=(
            *_integer_syntax(_IDLE),
            refused(_IDLE, "2", "EINVAL"),
            refused(_IDLE, "-1", "EINVAL"),
            accepted(_SHARES, "512"),
            accepted(_IDLE, "1"),
            reads(_SHARES, "3"),
            refused(_SHARES, "512", "EINVAL"),
            group("child"),
            reads(_IDLE, "0", group="child"),
            accepted(_IDLE, "0"),
            reads(_SHARES, "1024"),
        ),
    ),
    Trial(
        name="v1: shares are clamped to 2..262144",
        version=1,
        controller="cpu",
        file=_SHARES,
        measured=True,
        steps=(
            reads(_SHARES, "1024"),
            accepted(_SHARES, "1", "2"),
            accepted(_SHARES, "999999", "262144"),
            *(refused(_SHARES, text, "EINVAL") for text in ("-5", "abc")),
        ),
    ),
    Trial(
        name="v1: a child's quota may not be looser than its parent's",
        version=1,
        controller="cpu",
        file=_QUOTA,
        measured=True,
        steps=(
            reads(_QUOTA, "-1"),
            refused(_QUOTA, "999", "EINVAL"),
            accepted(_QUOTA, "1000"),
            accepted(_QUOTA, "-7", "-1"),
            accepted(_QUOTA, "50000"),
            group("child"),
            accepted(_QUOTA, "40000", group="child"),
            refused(_QUOTA, "60000", "EINVAL", group="child"),
            refused(_QUOTA, "30000", "EINVAL"),
            accepted(_QUOTA, "-1", group="child"),
            accepted(_QUOTA, "30000"),
            *(refused("cpu.cfs_period_us", text, "EINVAL") for text in ("999", "1000001")),
        ),
    ),
    Trial(
        name="v1 mainline: burst stays below a quota, and without one is free",
        version=1,
        controller="cpu",
        file="cpu.cfs_burst_us",
        flavours=("mainline",),
        measured=True,
        steps=(
            accepted(_QUOTA, "20000"),
            accepted("cpu.cfs_burst_us", "20000"),
            refused("cpu.cfs_burst_us", "20001", "EINVAL"),
            accepted(_QUOTA, "-1"),
            reads("cpu.cfs_burst_us", "20000"),
        ),
    ),
)

_CPUS = "cpuset.cpus"
_LIMIT = "memory.limit_in_bytes"
_GROUPS_V1: tuple[Trial, ...] = (
    Trial(
        name="v1: a CPU set is within its parent's and holds its children's",
        version=1,
        controller="cpuset",
        file=_CPUS,
        measured=True,
        cpus=2,
        steps=(
            reads(_CPUS, ""),
            accepted(_CPUS, "0,1", "0-1"),
            group("child"),
            reads(_CPUS, "", group="child"),
            accepted(_CPUS, "0", group="child"),
            refused(_CPUS, "1", "EBUSY"),
            accepted(_CPUS, "0"),
            refused(_CPUS, "0-1", "EACCES", group="child"),
            refused(_CPUS, "text", "EINVAL"),
        ),
    ),
    Trial(
        name="v1: memory limits are whole pages, and the swap limit is not below the memory limit",
        version=1,
        controller="memory",
        file=_LIMIT,
        measured=True,
        steps=(
            accepted(_LIMIT, "1048577", "1048576"),
            refused(_LIMIT, "text", "EINVAL"),
            accepted(_LIMIT, "-1", "9223372036854771712", "9223372036854710272"),
            accepted("memory.soft_limit_in_bytes", "1048576"),
        ),
    ),
)

_WEIGHT = "cpu.weight"
_MAX = "cpu.max"
_MAINLINE_V2: tuple[Trial, ...] = (
    Trial(
        name="v2: weight 1..10000, not while idle",
        version=2,
        controller="cpu",
        file=_IDLE,
        measured=True,
        steps=(
            refused(_IDLE, "2", "EINVAL"),
            accepted(_WEIGHT, "50"),
            accepted(_IDLE, "1"),
            reads(_WEIGHT, "0", "1"),
            refused(_WEIGHT, "50", "EINVAL"),
            accepted(_IDLE, "0"),
            reads(_WEIGHT, "100"),
        ),
    ),
    Trial(
        name="v2: weight out of range",
        version=2,
        controller="cpu",
        file=_WEIGHT,
        measured=True,
        steps=(
            reads(_WEIGHT, "100"),
            *(refused(_WEIGHT, text, "ERANGE") for text in ("0", "10001")),
            refused(_WEIGHT, "abc", "EINVAL"),
        ),
    ),
    Trial(
        name="v2: a child's quota may be looser than its parent's, burst may not pass the quota",
        version=2,
        controller="cpu",
        file=_MAX,
        measured=True,
        steps=(
            reads(_MAX, "max 100000"),
            accepted(_MAX, "50000", "50000 100000"),
            refused(_MAX, "999 100000", "EINVAL"),
            accepted("cpu.max.burst", "50000"),
            refused("cpu.max.burst", "50001", "EINVAL"),
        ),
    ),
)

TRIALS: tuple[Trial, ...] = (*_MAINLINE_V1, *_GROUPS_V1, *_MAINLINE_V2, *_OPENEULER, *_ANOLIS, *_TENCENT)
"""Every trial, mainline first. A new kernel's answers are new rows here, not code elsewhere."""


class RootAnswer(msgspec.Struct, frozen=True):
    """What the hierarchy's own top says: files of v1 that it shows, and with which errno it refuses their writes."""

    version: Literal[1, 2]
    file: str
    reads: str
    errno: str = "EINVAL"


ROOT_ANSWERS: tuple[RootAnswer, ...] = (
    RootAnswer(1, "cpu.qos_level", "0"),
    RootAnswer(1, "memory.qos_level", "0"),
    RootAnswer(1, "cpu.bvt_warp_ns", "0"),
    RootAnswer(1, "cpu.offline", "0"),
    RootAnswer(1, "cpu.idle", "0"),
    RootAnswer(1, "cpu.shares", "1024"),
    RootAnswer(1, "cpu.cfs_quota_us", "-1"),
)
"""For the double only: the root of a live machine is never written, not even to see a refusal."""
