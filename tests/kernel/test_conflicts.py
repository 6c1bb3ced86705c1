import fcntl
import pathlib

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import conflicts


def names(tree: Tree) -> list[tuple[str, str]]:
    return [(conflict.name, conflict.kind) for conflict in conflicts.find(tree.root)]


def test_nothing_is_in_the_way_of_a_calm_node(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("proc/12/comm", "kubelet")
    tree.file("sys/kernel/sched_ext/state", "disabled")
    tree.file("proc/sys/kernel/sched_core", "0")
    tree.file("proc/sys/kernel/sched_group_identity_enabled", "1")
    assert names(tree) == []


@pytest.mark.parametrize("agent", ["koordlet", "rubik", "volcano-agent", "vc-agent"])
@pytest.mark.parametrize("by", ["comm", "cmdline"])
def test_a_second_agent_is_found(tmp_path: pathlib.Path, agent: str, by: str) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("proc/7/comm", agent if by == "comm" else "main")
    tree.file("proc/7/cmdline", "sh" if by == "comm" else f"/usr/bin/{agent}\0--v=4\0")
    assert names(tree) == [(agent, "agent")]
    assert "process 7" in conflicts.find(tree.root)[0].reason


def test_one_that_has_ended_and_waits_for_its_parent_is_no_agent(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("proc/7/comm", "koordlet")
    (tree.root.proc / "7/cmdline").write_bytes(b"")
    assert names(tree) == []


def test_one_that_is_known_is_followed_without_a_look_at_the_others(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    for process in ("7", "8"):
        tree.file(f"proc/{process}/comm", "koordlet")
        tree.file(f"proc/{process}/cmdline", "/koordlet\0")
    (known,) = conflicts.agents(tree.root)
    assert (known.name, known.process) == ("koordlet", 7)
    assert conflicts.remaining(tree.root, [known]) == (known,)
    tree.file("proc/7/comm", "sleep")
    tree.file("proc/7/cmdline", "sleep\0")
    assert conflicts.remaining(tree.root, [known]) == ()
    assert [agent.process for agent in conflicts.agents(tree.root)] == [8]


def test_an_argument_is_no_agent(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("proc/7/comm", "grep")
    tree.file("proc/7/cmdline", "grep\0koordlet\0")
    assert names(tree) == []


def test_a_lock_that_is_held_shows_an_agent_and_a_left_one_does_not(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rubik.lock"
    path.touch()

    class Machine:
        is_machine = True

    assert not conflicts._is_held(Machine(), path)  # type: ignore[arg-type]
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert conflicts._is_held(Machine(), path)  # type: ignore[arg-type]
    assert not conflicts._is_held(Machine(), tmp_path / "none")  # type: ignore[arg-type]


def test_group_identity_beside_core_scheduling(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("proc/sys/kernel/sched_core", "1")
    tree.file("sys/fs/cgroup/cpu/cpu.bvt_warp_ns", "0")
    assert names(tree) == [("group-identity-and-core-scheduling", "kernel")]
    tree.file("proc/sys/kernel/sched_group_identity_enabled", "0")
    assert names(tree) == []
    tree.file("proc/sys/kernel/sched_group_identity_enabled", "1")
    assert names(tree) == [("group-identity-and-core-scheduling", "kernel")]


def test_another_scheduler(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("sys/kernel/sched_ext/state", "enabled")
    tree.file("sys/kernel/sched_ext/root/ops", "rusty_1.0")
    (conflict,) = conflicts.find(tree.root)
    assert conflict.name == "sched-ext"
    assert "rusty_1.0" in conflict.reason
