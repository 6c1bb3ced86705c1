"""The same trials on the double, on its mounted form, and on this machine's own v1 files."""

import errno
import os
import pathlib

import pytest
from tests.double import fuse, model, replay

from cotenant.kernel import paths, semantics


class Machine:
    """Real files below a root, by plain system calls."""

    def __init__(self, root: str) -> None:
        self.root = root

    def read(self, path: str) -> str:
        return pathlib.Path(self.root, path).read_text()

    def write(self, path: str, text: str) -> None:
        fd = os.open(os.path.join(self.root, path), os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def mkdir(self, path: str) -> None:
        os.mkdir(os.path.join(self.root, path))

    def rmdir(self, path: str) -> None:
        os.rmdir(os.path.join(self.root, path))


def double(name: str) -> model.Kernel:
    kernel = model.kernel(name)
    if kernel.flavour.version == 2:
        kernel.write(f"{model.CGROUP}/cgroup.subtree_control", "+cpu +cpuset +memory +io +pids")
    for switch in ("kernel/sched_group_identity_enabled", "vm/memcg_qos_enable"):
        if kernel.sysctl(switch) is not None:
            kernel.write(f"proc/sys/{switch}", "1")
    return kernel


def directory_of(trial: semantics.Trial) -> str:
    return f"{model.CGROUP}/{trial.controller}" if trial.version == 1 else model.CGROUP


CASES = [
    pytest.param(name, trial, id=f"{name}: {trial.name}")
    for name, flavour in model.FLAVOURS.items()
    for trial in replay.applicable(flavour.vendor, flavour.version)
]


@pytest.mark.parametrize(("name", "trial"), CASES)
def test_the_double_answers_as_the_trials_say(name: str, trial: semantics.Trial) -> None:
    kernel = double(name)
    group = f"{directory_of(trial)}/scratch"
    kernel.mkdir(group)
    scratch = kernel.group(group)
    if trial.file not in {file.name for file in scratch.hierarchy.files_of(scratch)}:
        # openEuler 5.10 has no cpu.idle, for one: then the trial says nothing, and the file must be absent.
        with pytest.raises(FileNotFoundError):
            kernel.read(f"{group}/{trial.file}")
        return
    assert replay.replay(trial, kernel, group) == []
    kernel.rmdir(group)


@pytest.mark.parametrize("answer", semantics.ROOT_ANSWERS, ids=lambda answer: answer.file)
def test_the_roots_of_v1_answer_as_stated(answer: semantics.RootAnswer) -> None:
    asked = 0
    for name, flavour in model.FLAVOURS.items():
        kernel = double(name)
        path = f"{model.CGROUP}/{answer.file.partition('.')[0]}/{answer.file}"
        try:
            text = kernel.read(path)
        except FileNotFoundError:
            continue
        asked += 1
        assert flavour.version == answer.version
        assert text == answer.reads + "\n"
        with pytest.raises(OSError, match=os.strerror(getattr(errno, answer.errno))):
            kernel.write(path, answer.reads)
    assert asked, f"no double shows {answer.file} at its root"


@pytest.mark.real
@pytest.mark.parametrize("name", model.FLAVOURS)
def test_the_mounted_double_answers_as_the_one_in_memory(name: str, tmp_path: pathlib.Path) -> None:
    if reason := fuse.unavailable():
        pytest.skip(reason)
    kernel = double(name)
    replayed = 0
    with fuse.mounted(kernel, tmp_path) as root:
        files = Machine(str(root))
        for trial in replay.applicable(kernel.flavour.vendor, kernel.flavour.version):
            group = f"{directory_of(trial)}/scratch"
            files.mkdir(group)
            if (root / group / trial.file).exists():
                assert replay.replay(trial, files, group) == [], trial.name
                replayed += 1
            files.rmdir(group)
    assert replayed


MEASURED = [t for t in semantics.TRIALS if t.measured and t.version == 1]


@pytest.mark.real
@pytest.mark.parametrize("trial", MEASURED, ids=lambda trial: trial.name)
def test_this_machine_answers_as_the_trials_say(trial: semantics.Trial) -> None:
    mount = paths.Root().hierarchy(trial.controller)
    if mount is None or mount.version != 1:
        pytest.skip(f"no v1 {trial.controller} hierarchy here")
    if not os.access(mount.path, os.W_OK):
        pytest.skip(f"{mount.path} is not writable")
    group = mount.path / f"cotenant-trial-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / trial.file).exists():
            pytest.skip(f"this kernel has no {trial.file}")
        if "mainline" not in trial.flavours:
            pytest.skip("stated for another family")
        assert replay.replay(trial, Machine("/"), str(group).lstrip("/")) == []
    finally:
        group.rmdir()
