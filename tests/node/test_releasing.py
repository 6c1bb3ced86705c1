import pathlib

import pytest

from cotenant.kernel import enforcing, executor, paths
from cotenant.node.releasing import RETRY_SECONDS, Releasing
from cotenant.units.clock import ManualClock
from cotenant.units.plan import PlanItem

FILE = "sys/fs/cgroup/cpu/g/cpu.shares"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> paths.Root:
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text("1024\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    (tmp_path / "proc/stat").write_text("cpu 1 1 1 1\ncpu0 1 1 1 1\n")
    return paths.Root(tmp_path)


def enforcer(root: paths.Root, clock: ManualClock) -> enforcing.Enforcer:
    return enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)


def write(writer: enforcing.Enforcer) -> None:
    (outcome,) = writer.write([PlanItem(op="write", path=FILE, old="1024", new="2", strategy="test", reason="a test")])
    assert outcome.state == "written", outcome


def shares(root: paths.Root) -> str:
    return (root.directory / FILE).read_text().strip()


def test_limits_stay_through_restarts_and_are_released_when_the_mode_changes(root: paths.Root) -> None:
    clock = ManualClock()
    first = enforcer(root, clock)
    Releasing(root, first, clock).follow("enforce")
    write(first)
    second = enforcer(root, clock)
    releasing = Releasing(root, second, clock)  # the agent was started again
    releasing.follow("enforce")
    assert shares(root) == "2"
    releasing.follow("observe")
    assert shares(root) == "1024"
    assert releasing.failures == 0
    assert releasing.problem == ""


def test_what_an_observing_agent_finds_is_somebody_else_s(root: paths.Root) -> None:
    clock = ManualClock()
    other = enforcer(root, clock)
    write(other)
    Releasing(root, enforcer(root, clock), clock).follow("observe")
    assert shares(root) == "2"


def test_what_cannot_be_put_back_is_counted_once_and_tried_again(root: paths.Root) -> None:
    clock = ManualClock()
    writer = enforcer(root, clock)
    releasing = Releasing(root, writer, clock)
    releasing.follow("enforce")
    write(writer)
    kept = (root.directory / FILE).read_text()
    (root.directory / FILE).unlink()
    (root.directory / FILE).mkdir()  # no value can be written there, by nobody
    for _ in range(3):
        releasing.follow("dry-run")
        clock.advance(RETRY_SECONDS)
    assert releasing.failures == 1
    assert "1 values could not be put back" in releasing.problem
    (root.directory / FILE).rmdir()
    (root.directory / FILE).write_text(kept)
    releasing.follow("dry-run")
    assert shares(root) == "1024"
    assert releasing.problem == ""


def test_nothing_is_released_under_another_agent_s_hands(root: paths.Root) -> None:
    clock = ManualClock()
    writer = enforcer(root, clock)
    releasing = Releasing(root, writer, clock)
    releasing.follow("enforce")
    write(writer)
    (root.proc / "77").mkdir()
    (root.proc / "77/comm").write_text("koordlet\n")
    clock.advance(60)
    writer.look([])
    releasing.follow("observe")
    assert shares(root) == "2"
    assert "koordlet" in releasing.problem
