import mmap

import pytest

from cotenant.units import contents


@pytest.mark.parametrize(
    ("file", "wanted", "current"),
    [
        ("cpu.max", "max", "max 100000"),
        ("cpu.max", "50000", "50000 100000"),
        ("cpu.max", "50000", "50000 20000"),
        ("cpu.max", "50000 100000", "50000 100000\n"),
        ("cpuset.cpus", "0,1,2", "0-2"),
        ("cpu.shares", "1", "2"),
        ("cpu.shares", "300000", "262144"),
        ("cpu.cfs_quota_us", "-7", "-1"),
        ("cpu.idle", "01", "1"),
        ("cpu.bvt_warp_ns", "-1", "-1\n"),
        ("memory.limit_in_bytes", "-1", str(contents.PAGE_COUNTER_MAX_BYTES)),
        ("memory.high", str(10 * mmap.PAGESIZE + 1), str(10 * mmap.PAGESIZE)),
        ("memory.max", "max", "max"),
        ("blkio.throttle.read_bps_device", "8:0 100", "8:16 7\n8:0 100\n"),
        ("blkio.throttle.read_bps_device", "8:0 0", ""),
        ("io.max", "8:0 rbps=100", "8:0 rbps=100 wbps=max riops=max wiops=max"),
        ("io.max", "8:0 rbps=max wbps=max riops=max wiops=max", ""),
        ("io.weight", "100", "default 100\n8:0 50"),
        ("io.cost.qos", "8:0 enable=1 min=50", "8:0 enable=1 ctrl=user min=50.00 max=150.00"),
        ("cgroup.subtree_control", "+cpu", "cpuset cpu io"),
        ("cgroup.subtree_control", "-cpu", "cpuset io"),
        ("sched_features", "NO_ID_IDLE_AVG", "GENTLE NO_ID_IDLE_AVG"),
        ("schemata", "L3:0=f", "    MB:0=100\n    L3:0=0000f;1=fffff"),
    ],
)
def test_same(file: str, wanted: str, current: str) -> None:
    assert contents.same(file, wanted, current)


@pytest.mark.parametrize(
    ("file", "wanted", "current"),
    [
        ("cpu.max", "50000 100000", "50000 20000"),
        ("cpu.max", "max", "50000 100000"),
        ("cpu.max", "100000", ""),
        ("cpuset.cpus", "0-1", "0-2"),
        ("cpuset.cpus", "0-1", ""),
        ("cpu.idle", "1", "0"),
        ("cpu.cfs_quota_us", "-1", "100000"),
        ("memory.max", "max", "4096"),
        ("blkio.throttle.read_bps_device", "8:0 100", "8:16 100"),
        ("io.max", "8:0 rbps=100", "8:0 rbps=101 wbps=max"),
        ("io.max", "8:0 rbps=100", ""),
        ("cgroup.subtree_control", "+cpu", "cpuset io"),
        ("sched_features", "NO_ID_IDLE_AVG", "GENTLE ID_IDLE_AVG"),
        ("schemata", "L3:0=f", "L3:0=ff;1=f"),
        ("schemata", "L3:0=f", "MB:0=10"),
    ],
)
def test_different(file: str, wanted: str, current: str) -> None:
    assert not contents.same(file, wanted, current)


@pytest.mark.parametrize(("word", "undone"), [("+cpu", "-cpu"), ("-io", "+io"), ("X", "NO_X"), ("NO_X", "X")])
def test_opposite(word: str, undone: str) -> None:
    assert contents.opposite(word) == undone
    assert contents.opposite(undone) == word
