"""The executor, restore and `verify kernel` on every family's double, through real files that answer like a kernel."""

import os
import pathlib
from collections.abc import Callable

import pytest
from tests.double import fuse, model

from cotenant.kernel import channel, executor, paths, priority, trials, undo
from cotenant.model.priority import PriorityInterface
from cotenant.units import ordering
from cotenant.units.plan import PlanItem

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(fuse.unavailable() is not None, reason=f"the double cannot be mounted: {fuse.unavailable()}"),
]

KUBEPODS = "kubepods/pod0a1b2c3d-0000-1111-2222-333344445555"


CONTROLLERS = ("cpu", "cpuset", "memory", "blkio")


def point_of(kernel: model.Kernel, controller: str) -> str:
    """Return where a v1 controller is mounted: ``cpu`` may be a link to ``cpu,cpuacct``."""
    return next(one.point for one in kernel.hierarchies if one.version == 1 and controller in one.controllers)


def machine(name: str) -> model.Kernel:
    """Return a double with a pod of one container, CPUs, memory and a quota of its own in every hierarchy."""
    kernel = model.kernel(name)
    v2 = kernel.flavour.version == 2
    points = {"cpu": model.CGROUP} if v2 else {one: point_of(kernel, one) for one in CONTROLLERS}
    for controller, point in points.items():
        path = point
        for part in (*KUBEPODS.split("/"), "container"):
            if v2:
                kernel.write(f"{path}/cgroup.subtree_control", "+cpu +cpuset +memory +io")
            path = f"{path}/{part}"
            kernel.mkdir(path)
            if not v2 and controller == "cpuset":
                kernel.write(f"{path}/cpuset.cpus", "0-3")
                kernel.write(f"{path}/cpuset.mems", "0")
            if not v2 and controller == "cpu":
                kernel.write(f"{path}/cpu.cfs_quota_us", "80000")
                kernel.write(f"{path}/cpu.cfs_burst_us", "40000")
                kernel.write(f"{path}/cpu.shares", "700")
    return kernel


def plan(kernel: model.Kernel, interface: PriorityInterface) -> list[PlanItem]:
    """Offline identity, a tight quota, other CPUs, memory and I/O limits: what suppressing a pod writes."""
    items = []

    def write(path: str, new: str, irreversible: bool = False) -> None:
        controller, _, below = path.partition("/")
        text = f"{point_of(kernel, controller)}/{below}" if controller in CONTROLLERS else f"{model.CGROUP}/{path}"
        items.append(
            PlanItem(op="write", path=text, new=new, strategy="test", reason="a test", irreversible=irreversible)
        )

    v2 = kernel.flavour.version == 2
    for switch in interface.switches:
        items.append(PlanItem(op="write", path=switch.path, new=switch.value, strategy="test", reason=switch.reason))
    for group in (KUBEPODS, f"{KUBEPODS}/container"):
        for setting in interface.settings[-1]:
            point = "" if interface.versions[setting.controller] == 2 else f"{setting.controller}/"
            write(f"{point}{group}/{setting.file}", setting.value, setting.irreversible)
        if v2:
            write(f"{group}/cpu.max", "20000 100000")
            write(f"{group}/cpuset.cpus", "4-5")
            write(f"{group}/memory.high", "1073741824")
            write(f"{group}/io.max", "8:0 rbps=1048576")
        else:
            write(f"cpu/{group}/cpu.cfs_quota_us", "20000")
            write(f"cpuset/{group}/cpuset.cpus", "4-5")
            write(f"memory/{group}/memory.limit_in_bytes", "1073741824")
            write(f"blkio/{group}/blkio.throttle.read_bps_device", "8:0 1048576")
    if not v2:
        write("cpuset/kubepods/cpuset.cpus", "2-5")
    return items


def ordered(kernel: model.Kernel, items: list[PlanItem]) -> list[PlanItem]:
    return ordering.order(items, {path: text.strip() for path, text in kernel.state().items()})


NAMES = sorted(model.FLAVOURS)


@pytest.mark.parametrize("name", NAMES)
def test_no_write_is_refused_and_restore_gives_back_what_the_kernel_lets(name: str, tmp_path: pathlib.Path) -> None:
    kernel = machine(name)
    with fuse.mounted(kernel, tmp_path) as directory:
        root = paths.Root(directory)
        interface = priority.probe(root)
        items = ordered(kernel, plan(kernel, interface))
        before = kernel.state()
        asked = len(kernel.attempts)
        outcomes = executor.Executor(root).apply(items)
        assert {outcome.state for outcome in outcomes} <= {"written", "same"}, outcomes
        assert [attempt for attempt in kernel.attempts[asked:] if attempt.errno is not None] == []
        again = executor.Executor(root)
        assert {outcome.state for outcome in again.apply(ordered(kernel, items))} <= {"same"}
        result = undo.restore(executor.Executor(root))
        changed = {path: text for path, text in kernel.state().items() if before[path] != text}
        sticky = {path for path in changed if path.endswith("cpu.qos_level")}
        assert changed.keys() == sticky, changed
        assert result.failed == result.foreign == result.stale == []
        assert {left.path for left in result.irreversible} == sticky
        assert bool(sticky) == interface.sticky
        assert result.pods_to_recreate == (["0a1b2c3d-0000-1111-2222-333344445555"] if sticky else [])


def test_a_list_that_was_empty_is_given_all_of_the_parents_while_tasks_are_there(tmp_path: pathlib.Path) -> None:
    """v2 takes no empty list back then (ENOSPC); the group may use the same CPUs as before."""
    kernel = machine("mainline-v2")
    kernel.spawn(f"{model.CGROUP}/{KUBEPODS}/container")
    with fuse.mounted(kernel, tmp_path) as directory:
        root = paths.Root(directory)
        top = f"{model.CGROUP}/kubepods/cpuset.cpus"
        above = PlanItem(op="write", path=top, new="4-5", strategy="test", reason="a test")
        executor.Executor(root).apply(ordered(kernel, [above, *plan(kernel, priority.probe(root))]))
        before = kernel.read(f"{model.CGROUP}/cpuset.cpus.effective").strip()
        result = undo.restore(executor.Executor(root))
        assert result.complete, result
        noted = {entry.path: entry.note for entry in result.restored if entry.note}
        lists = [top, *(f"{model.CGROUP}/{group}/cpuset.cpus" for group in (KUBEPODS, f"{KUBEPODS}/container"))]
        assert sorted(noted) == sorted(lists)
        assert all(note.startswith(f"{before}, all that its parent has") for note in noted.values() if note)
        assert {kernel.read(path).strip() for path in lists} == {before}
        assert undo.restore(executor.Executor(root)).restored == [], "a second one finds nothing to do"


def dying(at: int) -> Callable[[int, bytes], int]:
    calls = [0]

    def write(descriptor: int, data: bytes) -> int:
        calls[0] += 1
        if calls[0] == at:
            os._exit(9)
        return os.write(descriptor, data)

    return write


@pytest.mark.parametrize("name", ["mainline-v1", "anolis-bvt"])
def test_killed_at_any_write_a_restore_loses_nothing(name: str, tmp_path: pathlib.Path) -> None:
    kernel = machine(name)
    with fuse.mounted(kernel, tmp_path) as directory:
        root = paths.Root(directory)
        items = ordered(kernel, plan(kernel, priority.probe(root)))
        before = kernel.state()
        for at in range(1, 300):
            child = os.fork()
            if child == 0:
                try:
                    executor.Executor(root, write=dying(at)).apply(items)
                finally:
                    os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            result = undo.restore(executor.Executor(root))
            assert kernel.state() == before, f"killed at write {at}"
            assert result.complete, f"killed at write {at}: {result}"
            if status == 0:
                return
    raise AssertionError("the plan never ended")


@pytest.mark.parametrize("name", NAMES)
def test_verify_kernel_agrees_and_cleans_up(name: str, tmp_path: pathlib.Path) -> None:
    kernel = machine(name)
    with fuse.mounted(kernel, tmp_path) as directory:
        root = paths.Root(directory)
        before = kernel.state()
        found = trials.verify(root)
        assert [result for result in found.results if result.state == "deviates"] == []
        assert any(result.state == "agrees" for result in found.results)
        # openEuler has no level of its own on v2: plain mainline is what its files show there.
        assert found.flavour == ("mainline" if name == "openeuler-v2" else kernel.flavour.vendor)
        assert kernel.state() == before


def test_verify_kernel_tells_a_kernel_that_differs(tmp_path: pathlib.Path) -> None:
    kernel = machine("mainline-v1")
    kernel.fail("write", f"{point_of(kernel, 'cpu')}/{trials.PREFIX}*/cpu.shares", "EIO")
    left = f"{point_of(kernel, 'cpu')}/{trials.PREFIX}4194305"
    kernel.mkdir(left)
    with fuse.mounted(kernel, tmp_path) as directory:
        found = trials.verify(paths.Root(directory))
    assert not found.agrees
    assert any("EIO, expected success" in said for result in found.results for said in result.deviations)
    assert left not in "\n".join(kernel.state())


def test_a_group_that_vanishes_between_read_and_write_is_dropped(tmp_path: pathlib.Path) -> None:
    kernel = machine("mainline-v1")
    pod = f"{point_of(kernel, 'cpu')}/{KUBEPODS}"
    items = [
        PlanItem(op="write", path=f"{pod}/{file}", new=new, strategy="test", reason="a test")
        for file, new in (("cpu.shares", "2"), ("cpu.cfs_burst_us", "1000"))
    ]

    def vanish(descriptor: int, data: bytes) -> int:
        if data == b"2\n":
            kernel.vanish(pod)
        return os.write(descriptor, data)

    with fuse.mounted(kernel, tmp_path) as directory:
        root = paths.Root(directory)
        outcomes = executor.Executor(root, write=vanish).apply(items)
        assert [outcome.state for outcome in outcomes] == ["gone", "gone"]
        assert undo.restore(executor.Executor(root)).complete
        assert not channel.Channel(root).peek(f"{pod}/cpu.shares")
