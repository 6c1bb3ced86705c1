import pathlib

import pytest

from cotenant.kernel import enforcing, executor, paths
from cotenant.units.clock import ManualClock
from cotenant.units.plan import PlanItem


@pytest.fixture
def root(tmp_path: pathlib.Path) -> paths.Root:
    cpu = tmp_path / "sys/fs/cgroup/cpu/kubepods"
    cpu.mkdir(parents=True)
    (cpu / "cpu.shares").write_text("1024\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    (tmp_path / "proc/stat").write_text("cpu 1 1 1 1\ncpu0 1 1 1 1\n")
    return paths.Root(tmp_path)


def lower(seen: object) -> list[PlanItem]:
    return [
        PlanItem(
            op="write", path="sys/fs/cgroup/cpu/kubepods/cpu.shares", old="1024", new="2", strategy="t", reason="r"
        )
    ]


def test_a_round_writes_once_and_then_nothing(root: paths.Root) -> None:
    clock = ManualClock()
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    assert enforcer.carry_out(enforcer.look([]), lower).written == 1
    assert (root.directory / "sys/fs/cgroup/cpu/kubepods/cpu.shares").read_text().strip() == "2"
    for _ in range(60):
        clock.advance(1)
        assert enforcer.carry_out(enforcer.look([]), lower).written == 0


def test_beside_another_agent_it_only_observes(root: paths.Root) -> None:
    other = root.proc / "77"
    other.mkdir()
    (other / "comm").write_text("koordlet\n")
    (other / "cmdline").write_bytes(b"/koordlet\0")
    clock = ManualClock()
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    done = enforcer.carry_out(enforcer.look([]), lower)
    assert done.conflict == "koordlet"
    assert done.written == 0
    assert (root.directory / "sys/fs/cgroup/cpu/kubepods/cpu.shares").read_text() == "1024\n"
    (other / "comm").unlink()
    (other / "cmdline").unlink()
    other.rmdir()
    # From the first round after it is gone: what it wrote is still there, and nobody was unprotected for a second.
    assert enforcer.carry_out(enforcer.look([]), lower).written == 1
