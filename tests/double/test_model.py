"""What the double does beyond single files: tasks, membership, groups that come and go, failures on demand."""

import errno
import os
import pathlib

import pytest
from tests.double import fuse, model

CPU = f"{model.CGROUP}/cpu"


def refuses(kernel: model.Kernel, path: str, text: str) -> str:
    """Return the name of the errno that a write gets."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - any errno; the caller says which
        kernel.write(path, text)
    return errno.errorcode[caught.value.errno or 0]


@pytest.mark.parametrize("name", ["openeuler", "openeuler-multi"])
def test_openeuler_sets_the_policy_of_tasks_and_leaves_it_when_they_move(name: str) -> None:
    kernel = model.kernel(name)
    kernel.mkdir(f"{CPU}/be")
    kernel.mkdir(f"{CPU}/be/deep")
    deep = kernel.spawn(f"{CPU}/be/deep")
    kernel.write(f"{CPU}/be/cpu.qos_level", "-1")
    assert kernel.policy(deep) == "idle"
    late = kernel.spawn(f"{CPU}/be")
    assert kernel.policy(late) == "idle"
    kernel.write(f"{CPU}/tasks", str(late))
    assert kernel.policy(late) == "idle"
    assert kernel.read(f"{CPU}/be/tasks") == ""


def test_tencent_moves_tasks_between_classes_both_ways() -> None:
    kernel = model.kernel("tencent")
    kernel.mkdir(f"{CPU}/be")
    task = kernel.spawn(f"{CPU}/be")
    kernel.write(f"{CPU}/be/cpu.offline", "1")
    assert kernel.policy(task) == "bt"
    kernel.write(f"{CPU}/be/cpu.offline", "0")
    assert kernel.policy(task) == "other"


def test_anolis_generation_1_keeps_policies_and_excludes_core_scheduling() -> None:
    kernel = model.kernel("anolis-bvt")
    kernel.mkdir(f"{CPU}/be")
    task = kernel.spawn(f"{CPU}/be")
    assert refuses(kernel, f"{CPU}/be/cpu.bvt_warp_ns", "-1") == "EPERM"
    kernel.write("proc/sys/kernel/sched_group_identity_enabled", "1")
    assert refuses(kernel, "proc/sys/kernel/sched_core", "1") == "EINVAL"
    kernel.write(f"{CPU}/be/cpu.bvt_warp_ns", "-1")
    assert kernel.read(f"{CPU}/be/cpu.identity") == "9\n"
    assert kernel.policy(task) == "other"


@pytest.mark.parametrize("path", ["cpu.cfs_quota_us", "tasks", "cpu.shares"])
def test_failures_are_answered_on_demand_and_end(path: str) -> None:
    kernel = model.kernel("mainline-v1")
    kernel.mkdir(f"{CPU}/a")
    kernel.fail("write", f"{CPU}/a/*", "EIO", times=2)
    text = {"tasks": "1"}.get(path, "20000")
    assert [refuses(kernel, f"{CPU}/a/{path}", text) for _ in range(2)] == ["EIO", "EIO"]
    kernel.write(f"{CPU}/a/{path}", text)
    assert [attempt.errno for attempt in kernel.attempts if attempt.operation == "write"] == [errno.EIO] * 2 + [None]


def test_a_group_that_vanishes_takes_its_tasks_and_its_files() -> None:
    kernel = model.kernel("mainline-v1")
    for group in ("pod", "pod/app"):
        kernel.mkdir(f"{CPU}/{group}")
    task = kernel.spawn(f"{CPU}/pod/app")
    with pytest.raises(OSError, match="busy"):
        kernel.rmdir(f"{CPU}/pod")
    kernel.vanish(f"{CPU}/pod")
    assert task not in kernel.tasks
    with pytest.raises(FileNotFoundError):
        kernel.read(f"{CPU}/pod/cpu.shares")


def test_v2_keeps_processes_out_of_inner_groups() -> None:
    kernel = model.kernel("mainline-v2")
    top = model.CGROUP
    kernel.mkdir(f"{top}/a")
    assert refuses(kernel, f"{top}/a/cgroup.subtree_control", "+cpu") == "ENOENT"
    kernel.write(f"{top}/cgroup.subtree_control", "+cpu +memory")
    kernel.write(f"{top}/a/cgroup.subtree_control", "+cpu")
    task = kernel.spawn()
    assert refuses(kernel, f"{top}/a/cgroup.procs", str(task)) == "EBUSY"
    kernel.mkdir(f"{top}/a/b")
    kernel.write(f"{top}/a/b/cgroup.procs", str(task))
    assert refuses(kernel, f"{top}/a/b/cgroup.subtree_control", "+cpu") == "EBUSY"
    assert refuses(kernel, f"{top}/cgroup.subtree_control", "-cpu") == "EBUSY"
    with pytest.raises(FileNotFoundError):
        kernel.read(f"{top}/a/b/memory.max")


def test_a_memory_limit_below_what_is_in_use_is_refused_on_v1() -> None:
    kernel = model.kernel("mainline-v1")
    path = f"{model.CGROUP}/memory/a"
    kernel.mkdir(path)
    kernel.usage_bytes[kernel.group(path).inode] = 10 << 20
    assert refuses(kernel, f"{path}/memory.limit_in_bytes", "1M") == "EBUSY"
    kernel.write(f"{path}/memory.limit_in_bytes", "20M")


def test_the_state_is_every_byte_that_a_restore_gives_back() -> None:
    kernel = model.kernel("mainline-v1")
    kernel.mkdir(f"{CPU}/a")
    before = kernel.state()
    kernel.write(f"{CPU}/a/cpu.shares", "2")
    changed = {path for path, text in kernel.state().items() if before[path] != text}
    assert changed == {f"{CPU}/a/cpu.shares"}


@pytest.mark.real
def test_mounted_files_answer_with_the_errno_of_the_system_call(tmp_path: pathlib.Path) -> None:
    if reason := fuse.unavailable():
        pytest.skip(reason)
    kernel = model.kernel("openeuler")
    with fuse.mounted(kernel, tmp_path) as root:
        group = root / CPU / "a"
        group.mkdir()
        assert "cpu.qos_level" in os.listdir(group)
        assert "a" in os.listdir(group.parent)
        assert group.stat().st_ino == kernel.group(f"{CPU}/a").inode
        with pytest.raises(PermissionError):
            os.open(group / "made", os.O_WRONLY | os.O_CREAT)
        (group / "tasks").write_text(str(os.getpid()))
        assert (group / "tasks").read_text() == f"{os.getpid()}\n"
        with pytest.raises(OSError, match="busy"):
            group.rmdir()
        kernel.end(os.getpid())
        opened = os.open(group / "cpu.shares", os.O_RDWR)
        try:
            group.rmdir()
            for call in (lambda: os.pread(opened, 10, 0), lambda: os.write(opened, b"5")):
                with pytest.raises(OSError, match=os.strerror(errno.ENODEV)):
                    call()
        finally:
            os.close(opened)
        assert (root / "run").is_dir()
