import errno
import json
import os
import pathlib
import shutil
import uuid
from collections.abc import Callable, Iterator

import pytest
from tests import process
from tests.waiting import await_true

from cotenant.kernel import paths
from cotenant.kernel.bpf import libbpf
from cotenant.kernel.bpf.errors import BpfUnavailable
from cotenant.kernel.bpf.tracer import BpfTracer


@pytest.fixture(scope="session")
def needs_libbpf():
    try:
        return libbpf.library()
    except BpfUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def tracer() -> Iterator[BpfTracer]:
    """Our programs in this machine's kernel, with what happened before the test already read."""
    loaded = BpfTracer(paths.Root())
    try:
        for program in loaded.programs:
            if program.missing:
                pytest.skip(f"no BPF here ({program.missing}): {program.detail}")
        loaded.read()
        yield loaded
    finally:
        loaded.close()


class Group:
    """A control group of our own in one controller's hierarchy."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.inode = directory.stat().st_ino

    def enter(self) -> None:
        """Move the calling process in; for ``preexec_fn``."""
        (self.directory / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        """Remove it, waiting for processes that are just ending."""
        await_true(self._is_removed, f"{self.directory} can be removed")

    def _is_removed(self) -> bool:
        try:
            self.directory.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True


@pytest.fixture
def group() -> Iterator[Callable[..., Group]]:
    """Make groups: ``group("blkio", "io")`` in the hierarchy of the first of these controllers that there is."""
    made: list[Group] = []

    def make(*controllers: str) -> Group:
        for controller in controllers:
            mount = paths.Root().hierarchy(controller)
            if mount is not None and os.access(mount.path, os.W_OK):
                made.append(Group(mount.path / f"cotenant-test-{uuid.uuid4().hex[:8]}"))
                return made[-1]
        pytest.skip(f"no writable hierarchy with {' or '.join(controllers)}")

    try:
        yield make
    finally:
        for one in made:
            one.remove()


@pytest.fixture
def file_on_disk(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file of 128 MiB whose blocks are all on the disk, so that overwriting it changes nothing else."""
    path = tmp_path / "data"
    block = os.urandom(1 << 20)
    with path.open("wb") as file:
        for _ in range(128):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
    except OSError as error:
        pytest.skip(f"{path}: the file system has no direct I/O ({error.strerror})")
    return path


@pytest.fixture
def fio(file_on_disk) -> Callable[..., dict[str, dict[str, object]]]:
    """Run fio on the file with direct I/O, in a group, and return its own account of reads or writes."""
    if shutil.which("fio") is None:
        pytest.skip("no fio (Debian: fio)")

    # Its program and libraries are read from the disk once, which is not what a test counts.
    warm = ["fio", "--name=warm", f"--filename={file_on_disk}", "--size=64k", "--direct=1", "--ioengine=libaio"]
    process.run([*warm, "--rw=read"], check=True, cwd=file_on_disk.parent)

    def run(group: Group, rw: str, *, first: bool = False, **options: object) -> dict[str, dict[str, object]]:
        def enter() -> None:
            group.enter()
            if first:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

        command = ["fio", "--name=test", f"--filename={file_on_disk}", "--size=128M", "--direct=1", "--ioengine=libaio"]
        command += [f"--rw={rw}", "--time_based", "--output-format=json"]
        command += [f"--{name}={value}" for name, value in options.items()]
        done = process.run(command, preexec_fn=enter, check=True, cwd=file_on_disk.parent)
        return json.loads(done.stdout)["jobs"][0]["read" if "read" in rw else "write"]

    return run
