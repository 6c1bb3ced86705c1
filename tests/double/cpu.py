"""The cpu controller: shares, quota, burst, weight, idle, and what each vendor adds to it."""

from typing import Any, ClassVar

from tests.double.groups import BT, IDLE, NORMAL, File, Group, Integer, ReadOnly, pressure
from tests.double.text import refusal

MIN_PERIOD_USEC, MAX_PERIOD_USEC = 1000, 1_000_000
MAX_QUOTA_USEC = (1 << 44) // 1000
IDLE_SHARES, DEFAULT_SHARES = 3, 1024
UNLIMITED = -1


class Shares(Integer):
    """v1: clamped, refused while the group is idle."""

    def __init__(self) -> None:
        super().__init__("cpu.shares", DEFAULT_SHARES, unsigned=True)

    def put(self, group: Group, value: int) -> None:
        if group.values.get("cpu.idle"):
            raise refusal("EINVAL")
        group.values[self.name] = min(max(value, 2), 262144)


class Idle(Integer):
    """Going idle takes the weight away; coming back gives the default, not the old one."""

    def __init__(self, weight: str, idle_weight: int, default_weight: int, *, on_root: bool) -> None:
        super().__init__("cpu.idle", 0, (0, 1), on_root=on_root)
        self.weight, self.idle_weight, self.default_weight = weight, idle_weight, default_weight

    def put(self, group: Group, value: int) -> None:
        if value != group.values[self.name]:
            group.values[self.name] = value
            group.values[self.weight] = self.idle_weight if value else self.default_weight


def set_bandwidth(group: Group, period: int, quota: int, burst: int) -> None:
    """Take a bandwidth if the group, its parent and its children allow it. ``quota`` -1 is none."""
    if group.parent is None:
        raise refusal("EINVAL")
    limited = quota != UNLIMITED
    if period < MIN_PERIOD_USEC or period > MAX_PERIOD_USEC:
        raise refusal("EINVAL")
    if limited and (quota < MIN_PERIOD_USEC or quota > MAX_QUOTA_USEC or burst > quota):
        raise refusal("EINVAL")
    if not limited and burst and group.kernel.flavour.burst_needs_quota:
        raise refusal("EINVAL")
    if group.hierarchy.version == 1:
        _check_ratios(group, period, quota)
    group.values["bandwidth"] = (period, quota, burst)


def _check_ratios(group: Group, period: int, quota: int) -> None:
    """v1: no child's ratio may be looser than that of its nearest limited ancestor."""

    def bound_of(one: Group) -> tuple[int, int]:
        if one is group:
            return period, quota
        return one.values["bandwidth"][:2]

    for one in group.subtree():
        one_period, one_quota = bound_of(one)
        if one_quota == UNLIMITED:
            continue
        for ancestor in one.ancestors():
            if ancestor.parent is None:
                break
            above_period, above_quota = bound_of(ancestor)
            if above_quota != UNLIMITED:
                if (one_quota << 20) // one_period > (above_quota << 20) // above_period:
                    raise refusal("EINVAL")
                break


class Bandwidth(Integer):
    """One of v1's three files over one bandwidth: quota, period, burst."""

    def __init__(self, name: str, position: int, *, unsigned: bool) -> None:
        super().__init__(name, unsigned=unsigned)
        self.position = position

    def create(self, group: Group) -> None:
        group.values.setdefault("bandwidth", (100_000, UNLIMITED, 0))

    def read(self, group: Group) -> str:
        return f"{group.values['bandwidth'][self.position]}\n"

    def put(self, group: Group, value: int) -> None:
        period, quota, burst = group.values["bandwidth"]
        if self.position == 0:
            set_bandwidth(group, value, quota, burst)
        elif self.position == 1:
            value = max(value, UNLIMITED)
            if value == UNLIMITED and group.kernel.flavour.burst_needs_quota:
                burst = 0
            set_bandwidth(group, period, value, burst)
        else:
            set_bandwidth(group, period, quota, value)


class Max(File):
    """v2 ``cpu.max``: ``QUOTA PERIOD``; a child's may be looser than its parent's."""

    on_root = False

    def create(self, group: Group) -> None:
        group.values.setdefault("bandwidth", (100_000, UNLIMITED, 0))

    def read(self, group: Group) -> str:
        period, quota, _ = group.values["bandwidth"]
        return f"{'max' if quota == UNLIMITED else quota} {period}\n"

    def parse(self, group: Group, text: str) -> Any:
        words = text.split()
        if not words:
            raise refusal("EINVAL")
        if words[0] != "max" and not words[0].isdigit():
            raise refusal("EINVAL")
        quota = UNLIMITED if words[0] == "max" else int(words[0])
        period = group.values["bandwidth"][0]
        if len(words) > 1 and words[1].isdigit():
            period = int(words[1])
        return period, quota

    def put(self, group: Group, value: Any) -> None:
        set_bandwidth(group, value[0], value[1], group.values["bandwidth"][2])


class Weight(Integer):
    """v2 ``cpu.weight``: 1..10000, refused while idle."""

    def __init__(self) -> None:
        super().__init__("cpu.weight", 100, (1, 10000), error="ERANGE", on_root=False, unsigned=True)

    def put(self, group: Group, value: int) -> None:
        if group.values.get("cpu.idle"):
            raise refusal("EINVAL")
        super().put(group, value)


class QosLevel(Integer):
    """openEuler: a level other than 0 sticks, reaches the subtree, and changes the policy of every task in it."""

    def __init__(self, *, multilevel: bool) -> None:
        super().__init__("cpu.qos_level", 0, (-2, 2) if multilevel else (-1, 0), inherits=True)
        self.multilevel = multilevel

    def put(self, group: Group, value: int) -> None:
        current = group.values[self.name]
        if value == current:
            return
        if current != 0 and (self.multilevel or value == 0):
            raise refusal("EINVAL")
        for one in group.subtree():
            one.values[self.name] = value
            for task in one.tasks():
                task.policy = IDLE if value < 0 else NORMAL


class BvtWarp(Integer):
    """Anolis generation 1: any level to any level, copied at mkdir, not pushed; sets the identity flags too."""

    FLAGS: ClassVar = {2: 22, 1: 18, 0: 0, -1: 9, -2: 9}

    def __init__(self) -> None:
        super().__init__("cpu.bvt_warp_ns", 0, (-2, 2), error="ERANGE", inherits=True)

    def put(self, group: Group, value: int) -> None:
        # What a kernel with the switch off answers is not documented; agents must not depend on it, so refuse.
        if group.kernel.sysctl("kernel/sched_group_identity_enabled") == "0":
            raise refusal("EPERM")
        if value != group.values[self.name]:
            group.values[self.name] = value
            group.values["cpu.identity"] = self.FLAGS[value]


class IdentityFlags(Integer):
    """Anolis generation 1: flag bits; writing them does not change what ``cpu.bvt_warp_ns`` reads."""

    def __init__(self) -> None:
        super().__init__("cpu.identity", 0, (0, 255), error="ERANGE", inherits=True)

    def put(self, group: Group, value: int) -> None:
        if value & 3 == 3:
            raise refusal("EINVAL")
        super().put(group, value)


class IdentityLevel(Integer):
    """Anolis generation 2: expeller, none, expellee; needs core scheduling."""

    def __init__(self) -> None:
        super().__init__("cpu.identity", 0, (-1, 1), on_root=False)

    def put(self, group: Group, value: int) -> None:
        if value and group.kernel.sysctl("kernel/sched_core") != "1":
            raise refusal("EINVAL")
        super().put(group, value)


class Offline(Integer):
    """TencentOS: any number but 0 is 1; tasks of this very group go to the BT class and come back."""

    def __init__(self) -> None:
        super().__init__("cpu.offline", 0, inherits=True, unsigned=True)

    def put(self, group: Group, value: int) -> None:
        group.values[self.name] = int(bool(value))
        for task in group.tasks():
            task.policy = BT if value else NORMAL


def attached(group: Group, tid: int) -> None:
    """Do what a kernel does to the policy of a task that enters a group of the cpu hierarchy."""
    task = group.kernel.tasks[tid]
    if group.values.get("cpu.qos_level", 0) < 0:
        task.policy = IDLE  # leaving such a group does not set it back
    if "cpu.offline" in group.values:
        task.policy = BT if group.values["cpu.offline"] else NORMAL


def files(version: int, vendor: str, *, joined_pressure: bool) -> list[File]:
    """Return the cpu controller's files of one vendor's kernel."""
    return [*(_v1() if version == 1 else _v2(joined_pressure)), *_vendor(version, vendor)]


def _v1() -> list[File]:
    statistics = "nr_periods 0\nnr_throttled 0\nthrottled_time 0\nnr_bursts 0\nburst_time 0\n"
    return [
        Shares(),
        Bandwidth("cpu.cfs_period_us", 0, unsigned=True),
        Bandwidth("cpu.cfs_quota_us", 1, unsigned=False),
        Bandwidth("cpu.cfs_burst_us", 2, unsigned=True),
        ReadOnly("cpu.stat", lambda group: statistics),
    ]


def _v2(with_pressure: bool) -> list[File]:
    def statistics(group: Group) -> str:
        usage = "usage_usec 0\nuser_usec 0\nsystem_usec 0\n"
        bandwidth = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n"
        return usage if group.parent is None else usage + bandwidth

    burst = Bandwidth("cpu.max.burst", 2, unsigned=True)
    burst.on_root = False
    found: list[File] = [Weight(), Max("cpu.max"), burst, ReadOnly("cpu.stat", statistics)]
    if with_pressure:
        found.append(ReadOnly("cpu.pressure", pressure))
    return found


def _vendor(version: int, vendor: str) -> list[File]:
    idle = Idle("cpu.shares", IDLE_SHARES, DEFAULT_SHARES, on_root=True)
    if version == 2:
        idle = Idle("cpu.weight", 0, 100, on_root=False)
    if vendor.startswith("openeuler"):
        # cpu.idle came with 6.6, where the level exists on v1 only.
        if version == 2:
            return [idle]
        return [QosLevel(multilevel=False)] if vendor == "openeuler" else [QosLevel(multilevel=True), idle]
    if vendor == "anolis-bvt":
        found: list[File] = [BvtWarp(), IdentityFlags(), idle]
        for file in found if version == 2 else ():
            file.on_root = False
        return found
    if vendor == "anolis-priority":
        priority = Integer("cpu.priority", 0, (-1, 1), on_root=False)
        return [priority, IdentityLevel(), Integer("cpu.ht_ratio", 100, (100, 200), on_root=False), idle]
    if vendor == "tencent":
        return [Offline(), Integer("cpu.bt_shares", DEFAULT_SHARES, unsigned=True)] if version == 1 else []
    return [idle]
