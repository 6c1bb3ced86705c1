"""Triggers on this machine's own kernel: a group of ours with two tasks on one CPU."""

import contextlib
import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.kernel import enforcing, executor, fast_path, paths, stall_trigger
from cotenant.units import clock
from cotenant.units.plan import PlanItem

pytestmark = pytest.mark.real

SPIN_SECONDS = 3 * PATIENCE_SECONDS


@pytest.fixture
def group() -> Iterator[pathlib.Path]:
    v2 = next((mount.path for mount in paths.Root().cgroup_mounts() if mount.version == 2), None)
    if v2 is None or os.geteuid() != 0:
        pytest.skip("needs root and a cgroup v2 tree")
    place = v2 / f"cotenant-test-trigger-{os.getpid()}"
    place.mkdir()
    try:
        if not (place / "cpu.pressure").exists():
            pytest.skip("the kernel accounts no stall by group (PSI is off)")
        yield place
    finally:
        with contextlib.suppress(FileNotFoundError):
            place.rmdir()


@contextlib.contextmanager
def two_on_one_cpu(group: pathlib.Path) -> Iterator[None]:
    spin = f"timeout {SPIN_SECONDS} sh -c 'while :; do :; done'"
    command = [
        "taskset",
        "-c",
        str(min(os.sched_getaffinity(0))),
        "sh",
        "-c",
        f"echo $$ > {group}/cgroup.procs; exec {spin}",
    ]
    spinning = [subprocess.Popen(command, start_new_session=True) for _ in range(2)]
    try:
        yield
    finally:
        for one in spinning:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, 9)
            one.wait()
        await_true(lambda: is_empty(group), "the tasks have ended")


def is_empty(group: pathlib.Path) -> bool:
    """Kill who is left in a group; return whether nobody is."""
    left = (group / "cgroup.procs").read_text().split()
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number), 9)
    return not left


@pytest.fixture
def triggers() -> Iterator[stall_trigger.Triggers]:
    # Two seconds: a window that the kernel also takes from a root without CAP_SYS_RESOURCE, as in containers.
    made = stall_trigger.Triggers(window_usec=2_000_000)
    yield made
    made.close()


def test_a_stall_ends_the_wait_and_calm_does_not(group: pathlib.Path, triggers: stall_trigger.Triggers) -> None:
    assert triggers.watch(group / "cpu.pressure")
    assert triggers.watch(group / "cpu.pressure"), "a second time is no second trigger"
    assert len(triggers) == 1
    assert not triggers.wait(0.3)
    with two_on_one_cpu(group):
        assert triggers.wait(PATIENCE_SECONDS)


def test_a_removed_group_is_forgotten(group: pathlib.Path, triggers: stall_trigger.Triggers) -> None:
    assert triggers.watch(group / "cpu.pressure")
    group.rmdir()

    def forgotten() -> bool:
        assert not triggers.wait(0.5)
        return len(triggers) == 0

    await_true(forgotten, "no trigger is left")


def test_a_wait_can_be_ended(triggers: stall_trigger.Triggers) -> None:
    before = time.monotonic()
    threading.Timer(0.05, triggers.wake).start()
    assert not triggers.wait(3 * PATIENCE_SECONDS)
    assert time.monotonic() - before < 3 * PATIENCE_SECONDS


def test_what_is_no_pressure_file_is_not_watched(triggers: stall_trigger.Triggers, tmp_path: pathlib.Path) -> None:
    assert not triggers.watch(tmp_path / "none")
    assert not triggers.watch(pathlib.Path("/proc/self/comm"))


@pytest.mark.parametrize("window_usec", [stall_trigger.WINDOW_USEC, 2_000_000])
def test_the_fast_path_answers_with_triggers_and_without(
    group: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, window_usec: int
) -> None:
    """Without CAP_SYS_RESOURCE the kernel refuses the first window, and groups are read ten times a second instead."""
    make = stall_trigger.Triggers
    monkeypatch.setattr(stall_trigger, "Triggers", lambda: make(window_usec=window_usec))
    root = paths.Root()
    root.run_dir = tmp_path  # the journal is the test's own
    cpu = root.hierarchy("cpu")
    assert cpu is not None
    quota_file = "cpu.max" if cpu.version == 2 else "cpu.cfs_quota_us"
    offline = cpu.path / f"cotenant-test-offline-{os.getpid()}"
    offline.mkdir()
    enforcer = enforcing.Enforcer(root, executor.Executor(root), beside_others=True)
    fast = fast_path.FastPath(root, enforcer, clock.SystemClock())
    try:
        if not (offline / quota_file).exists():
            pytest.skip("no CPU controller for groups of ours")
        path = root.relative(offline / quota_file)
        fast.start()
        fast.aim([group.name], [PlanItem(op="write", path=path, new="50000", strategy="fast_path", reason="test")])
        with two_on_one_cpu(group):
            await_true(lambda: fast.total, "the fast path has answered")
        assert (offline / quota_file).read_text().split()[0] == "50000"
    finally:
        fast.stop()
        enforcer.restore()
        offline.rmdir()
