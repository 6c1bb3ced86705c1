import pathlib
import time

import pytest

from cotenant.kernel import enforcing, executor, fast_path, paths
from cotenant.units.clock import ManualClock
from cotenant.units.plan import PlanItem

ONLINE = "cotenant-ls/web"
QUOTA = "sys/fs/cgroup/cpu/cotenant-be/cpu.cfs_quota_us"


class Bench:
    def __init__(self, directory: pathlib.Path) -> None:
        self.cpu = directory / "sys/fs/cgroup/cpu"
        self.unified = directory / "sys/fs/cgroup/unified"
        for group in (self.cpu / "cotenant-be", self.cpu / ONLINE, self.unified / ONLINE):
            group.mkdir(parents=True)
        (directory / "proc/self").mkdir(parents=True)
        (directory / "proc/self/mountinfo").write_text(
            "31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            "32 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        )
        (directory / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
        (directory / "proc/stat").write_text("cpu 1 1 1 1\ncpu0 1 1 1 1\n")
        (self.cpu / "cotenant-be/cpu.cfs_quota_us").write_text("130000\n")
        self.stalled_usec = 0
        self.throttled = 0
        self.clock = ManualClock()
        root = paths.Root(directory)
        enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=self.clock), clock=self.clock)
        self.fast = fast_path.FastPath(root, enforcer, self.clock)
        self.after(0.0)

    def after(self, seconds: float, stalled: float = 0.0, throttled: int = 0) -> bool:
        self.passes(seconds, stalled, throttled)
        return self.fast.poll()

    def passes(self, seconds: float, stalled: float, throttled: int = 0) -> None:
        self.clock.advance(seconds)
        self.stalled_usec += int(stalled * 1e6)
        self.throttled += throttled
        text = f"avg10=0.00 avg60=0.00 avg300=0.00 total={self.stalled_usec}"
        (self.unified / ONLINE / "cpu.pressure").write_text(f"some {text}\nfull {text}\n")
        (self.cpu / ONLINE / "cpu.stat").write_text(f"nr_periods 9\nnr_throttled {self.throttled}\nthrottled_time 0\n")

    def aim(self) -> None:
        item = PlanItem(op="write", path=QUOTA, new="100000", strategy="fast_path", reason="r")
        self.fast.aim([ONLINE], [item])

    def quota(self) -> str:
        return (self.cpu / "cotenant-be/cpu.cfs_quota_us").read_text().strip()


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Bench:
    bench = Bench(tmp_path)
    bench.aim()
    assert not bench.after(0.1)
    return bench


def test_online_work_that_waits_is_answered_at_the_next_read(bench: Bench) -> None:
    assert not bench.after(0.1, stalled=0.01)
    assert bench.fast.ago_seconds() is None
    assert bench.after(0.1, stalled=0.05)
    assert bench.quota() == "100000"
    bench.clock.advance(2)
    assert (bench.fast.ago_seconds(), bench.fast.total) == (2, 1)


def test_what_was_ready_is_written_once(bench: Bench) -> None:
    assert bench.after(0.1, stalled=0.1)
    (bench.cpu / "cotenant-be/cpu.cfs_quota_us").write_text("130000\n")
    assert not bench.after(0.1, stalled=0.1)
    bench.aim()
    bench.after(0.1, stalled=0.1)
    assert bench.quota() == "100000"


def test_a_group_that_its_own_quota_throttles_does_not_count(bench: Bench) -> None:
    assert not bench.after(0.1, stalled=0.1, throttled=1)
    assert bench.quota() == "130000"


def test_a_long_break_says_nothing_about_now(bench: Bench) -> None:
    assert not bench.after(30, stalled=20)
    assert bench.after(0.1, stalled=0.09)


def test_without_stall_accounting_nothing_is_guessed(bench: Bench) -> None:
    bench.fast.aim(["cotenant-ls/other"], [PlanItem(op="write", path=QUOTA, new="1000", strategy="f", reason="r")])
    assert not bench.fast.poll()
    assert fast_path.Stall(paths.Root(), "no/such/group").pressure is None
    assert bench.quota() == "130000"


def test_the_thread_wakes_up_when_there_is_something_to_write_and_to_end(bench: Bench) -> None:
    item = PlanItem(op="write", path=QUOTA, new="100000", strategy="fast_path", reason="r")
    bench.fast.aim([ONLINE], [])
    bench.fast.start()
    bench.fast.aim([ONLINE], [item])
    deadline = time.monotonic() + 60
    while bench.quota() != "100000":
        assert time.monotonic() < deadline
        bench.passes(0.02, stalled=0.02)
        time.sleep(0.02)
    bench.fast.aim([ONLINE], [])
    bench.fast.stop(timeout_s=60)
    assert not bench.fast._thread.is_alive()


def test_a_thread_that_never_had_anything_to_do_ends(bench: Bench) -> None:
    bench.fast.aim([], [])
    bench.fast.start()
    bench.fast.stop(timeout_s=60)
    assert not bench.fast._thread.is_alive()
