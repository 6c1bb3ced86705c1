"""The memory controller, v1 and v2, and what openEuler and Anolis add to it."""

from tests.double import text as kernel_text
from tests.double.groups import File, Group, Integer, ReadOnly, pressure
from tests.double.text import PAGE_BYTES, refusal

NO_LIMIT_V1 = (1 << 63) - 1 - (PAGE_BYTES - 1)
"""What v1 prints for no limit: the largest signed number, in whole pages."""


class Bytes(File):
    """A limit in bytes, whole pages; None is no limit."""

    def __init__(self, name: str, initial: int | None, *, version: int, on_root: bool, root_error: str | None) -> None:
        super().__init__(name, initial)
        self.version = version
        self.on_root = on_root
        self.root_error = root_error

    def read(self, group: Group) -> str:
        value = group.values[self.name]
        if value is None:
            return f"{NO_LIMIT_V1}\n" if self.version == 1 else "max\n"
        return f"{value}\n"

    def parse(self, group: Group, text: str) -> int | None:
        value = kernel_text.size_bytes(text, "-1" if self.version == 1 else "max")
        if group.parent is None and self.root_error:
            raise refusal(self.root_error)
        return value


class Limit(Bytes):
    """The hard limit. v1 refuses one below what is in use (EBUSY, after reclaim); v2 takes it and reclaims later."""

    def put(self, group: Group, value: int | None) -> None:
        if self.version == 1:
            if value is not None and value < group.kernel.memory_usage_bytes(group):
                raise refusal("EBUSY")
            memsw = group.values.get("memory.memsw.limit_in_bytes")
            if memsw is not None and (value is None or value > memsw):
                raise refusal("EINVAL")
        super().put(group, value)


class MemswLimit(Bytes):
    """v1: memory and swap together, never below the memory limit."""

    def put(self, group: Group, value: int | None) -> None:
        limit = group.values["memory.limit_in_bytes"]
        if value is not None and (limit is None or value < limit):
            raise refusal("EINVAL")
        super().put(group, value)


class Reclaim(File):
    """v2 ``memory.reclaim``: EAGAIN where less than asked for could be reclaimed."""

    readable = False

    def parse(self, group: Group, text: str) -> int:
        words = text.split()
        wanted = kernel_text.size_bytes(words[0], "") if words else None
        if wanted is None:
            raise refusal("EINVAL")
        return wanted

    def put(self, group: Group, value: int) -> None:
        usage = group.kernel.memory_usage_bytes(group)
        group.kernel.usage_bytes[group.inode] = max(0, usage - value)
        if usage < value:
            raise refusal("EAGAIN")


class QosLevel(Integer):
    """openEuler: 0 or -1, only while its switch is on."""

    def __init__(self) -> None:
        super().__init__("memory.qos_level", 0, (-1, 0), inherits=True)

    def put(self, group: Group, value: int) -> None:
        if group.kernel.sysctl("vm/memcg_qos_enable") == "0":
            raise refusal("EACCES")
        for one in group.subtree():
            one.values[self.name] = value


class WatermarkMinAdjust(Integer):
    """Anolis: reads the effective value, the largest along the path that is not 0."""

    def __init__(self) -> None:
        super().__init__("memory.wmark_min_adj", 0, (-25, 50), on_root=False, inherits=True)

    def read(self, group: Group) -> str:
        path = [group, *(one for one in group.ancestors() if one.parent is not None)]
        set_values = [one.values[self.name] for one in path if one.values[self.name]]
        return f"{max(set_values, default=0)}\n"


def usage(group: Group) -> str:
    """Return the bytes in use by the subtree."""
    return f"{group.kernel.memory_usage_bytes(group)}\n"


def files(version: int, vendor: str) -> list[File]:
    """Return the memory controller's files of one vendor's kernel."""
    return [*(_v1() if version == 1 else _v2()), *_vendor(version, vendor)]


def _v1() -> list[File]:
    names = ("failcnt", "memsw.failcnt")
    return [
        Limit("memory.limit_in_bytes", None, version=1, on_root=True, root_error="EINVAL"),
        MemswLimit("memory.memsw.limit_in_bytes", None, version=1, on_root=True, root_error="EINVAL"),
        Bytes("memory.soft_limit_in_bytes", None, version=1, on_root=True, root_error=None),
        ReadOnly("memory.usage_in_bytes", usage),
        ReadOnly("memory.max_usage_in_bytes", usage),
        *(ReadOnly(f"memory.{name}", lambda group: "0\n") for name in names),
        ReadOnly("memory.stat", lambda group: "cache 0\nrss 0\ntotal_inactive_file 0\ntotal_cache 0\ntotal_rss 0\n"),
        Integer("memory.swappiness", 60, (0, 200), unsigned=True, root_error=None),
        Integer("memory.use_hierarchy", 1, (1, 1), unsigned=True, root_error=None),
        ReadOnly("memory.oom_control", lambda group: "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
    ]


def _v2() -> list[File]:
    def limit(name: str, initial: int | None) -> Bytes:
        return Bytes(name, initial, version=2, on_root=False, root_error=None)

    events = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"
    return [
        limit("memory.min", 0),
        limit("memory.low", 0),
        limit("memory.high", None),
        Limit("memory.max", None, version=2, on_root=False, root_error=None),
        limit("memory.swap.max", None),
        Integer("memory.oom.group", 0, (0, 1), on_root=False),
        Reclaim("memory.reclaim"),
        ReadOnly("memory.current", usage, on_root=False),
        ReadOnly("memory.swap.current", lambda group: "0\n", on_root=False),
        ReadOnly("memory.stat", lambda group: "anon 0\nfile 0\ninactive_file 0\nworkingset_refault_file 0\n"),
        ReadOnly("memory.events", lambda group: events, on_root=False),
        ReadOnly("memory.pressure", pressure),
    ]


def _vendor(version: int, vendor: str) -> list[File]:
    def protections() -> list[File]:
        """The v2 names that both vendors have on v1 too."""
        initial: dict[str, int | None] = {"min": 0, "low": 0, "high": None}
        return [
            Bytes(f"memory.{name}", value, version=2, on_root=False, root_error=None)
            for name, value in initial.items()
            if version == 1
        ]

    if vendor.startswith("openeuler"):
        ratio = Integer("memory.high_async_ratio", 0, (0, 100), on_root=False)
        return [*protections(), ratio, *([QosLevel()] if version == 1 else [])]
    if vendor.startswith("anolis"):
        bounded = {"wmark_ratio": (0, 100, 0), "wmark_scale_factor": (1, 1000, 50), "priority": (0, 12, 0)}
        return [
            *protections(),
            WatermarkMinAdjust(),
            *(Integer(f"memory.{n}", d, (low, high), on_root=False) for n, (low, high, d) in bounded.items()),
            Integer("memory.use_priority_oom", 0, (0, 1)),
            Bytes("memory.pagecache_limit.size", 0, version=2, on_root=False, root_error=None),
            *(Integer(f"memory.pagecache_limit.{name}", 0, (0, 1), on_root=False) for name in ("enable", "sync")),
            *([Integer("memory.oom.group", 0, (0, 1), on_root=False)] if version == 1 else []),
        ]
    return []
