"""The noises, each at two strengths, and the online work beside them; all in control groups of their own."""

import contextlib
import dataclasses
import errno
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from cotenant.kernel import paths
from cotenant.model.evaluation import DetectionName

CONTROLLERS = ("cpu", "cpuacct", "memory", "blkio")
MIB = 1 << 20

ONLINE = """
import mmap, os, sys, time
file, block, number = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096), 0
while True:
    time.sleep(0.005)
    end = time.thread_time() + 0.003
    while time.thread_time() < end:
        pass
    number += 1
    if number % 4 == 0:
        os.preadv(file, [block], number % 8192 * 4096)
"""
SPIN = "while True: pass"
PAGES = """
import mmap, random, sys
with open(sys.argv[1], "rb") as file:
    data = mmap.mmap(file.fileno(), int(sys.argv[2]), prot=mmap.PROT_READ)
pages = len(data) // 4096
while True:
    data[random.randrange(pages) * 4096]
"""


@dataclasses.dataclass(frozen=True)
class Noise:
    """One noise: what must be detected, and how it is started in a group at a strength (0 moderate, 1 strong)."""

    name: str
    kind: DetectionName
    start: Callable[["Group", int, pathlib.Path], list[subprocess.Popen[bytes]]]


class Group:
    """One control group: on v1 the same path in each hierarchy that we use."""

    def __init__(self, path: str) -> None:
        root = paths.Root()
        found = [root.hierarchy(controller) for controller in CONTROLLERS]
        tops = {mount.path for mount in found if mount is not None}
        self.path = path
        self.directories = sorted(top / path for top in tops)
        for directory in self.directories:
            directory.mkdir(parents=True)

    def enter(self) -> None:
        """Move the calling process in; for ``preexec_fn``."""
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(os.getpid()))

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command in the group, in a session of its own."""
        return subprocess.Popen(
            command, preexec_fn=self.enter, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def end(self) -> None:
        """End every process in the group, and wait until none is left."""
        deadline = time.monotonic() + 20
        while pids := {int(pid) for pid in (self.directories[0] / "cgroup.procs").read_text().split()}:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path}: {sorted(pids)} do not end")
            time.sleep(0.05)

    def limit_memory(self, limit: int) -> None:
        """Set the group's memory limit; -1 takes it away."""
        for directory in self.directories:
            for name, none in (("memory.limit_in_bytes", "-1"), ("memory.max", "max")):
                if (directory / name).exists():
                    (directory / name).write_text(str(limit) if limit >= 0 else none)

    def remove(self) -> None:
        """Remove it, waiting for processes that are just ending."""
        for directory in self.directories:
            deadline = time.monotonic() + 10
            while True:
                try:
                    directory.rmdir()
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)


def _io(group: Group, strength: int, files: pathlib.Path) -> list[subprocess.Popen[bytes]]:
    # Small requests at a depth, or one sequential reader, hurt nobody on a healthy disk: these are large and many.
    depth, jobs = ("64", "8") if strength else ("64", "3")
    options = [f"--filename={files / 'noise'}", "--size=512M", "--direct=1", "--ioengine=libaio", "--rw=randwrite"]
    options += ["--bs=256k", f"--iodepth={depth}", f"--numjobs={jobs}", "--time_based", "--runtime=600"]
    return [group.spawn("fio", "--name=noise", *options)]


def _memory(group: Group, strength: int, files: pathlib.Path) -> list[subprocess.Popen[bytes]]:
    # The working set is a file three times the limit; more readers press harder.
    group.limit_memory(170 * MIB)
    command = (sys.executable, "-c", PAGES, str(files / "noise"), str(512 * MIB))
    return [group.spawn(*command) for _ in range(8 if strength else 3)]


def _cpu(group: Group, strength: int, files: pathlib.Path) -> list[subprocess.Popen[bytes]]:
    del files
    return [group.spawn(sys.executable, "-c", SPIN) for _ in range((os.cpu_count() or 1) * (4 if strength else 2))]


def _softirq(group: Group, strength: int, files: pathlib.Path) -> list[subprocess.Popen[bytes]]:
    del files
    server = group.spawn("ip", "netns", "exec", NAMESPACE, "iperf3", "-s", "-p", "5999")
    time.sleep(0.5)
    rate, streams = ("0", "4") if strength else ("2G", "1")
    client = ("iperf3", "-c", SERVER, "-p", "5999", "-u", "-b", rate, "-l", "64", "-P", streams, "-t", "600")
    return [server, group.spawn(*client)]


NOISES = (
    Noise("io", "ioCongestion", _io),
    Noise("memory", "memoryPressure", _memory),
    Noise("cpu", "cpuContention", _cpu),
    Noise("softirq", "cpuContention", _softirq),
)
STRENGTHS = ("moderate", "strong")
NAMESPACE = f"cotenant-noise-{os.getpid()}"
SERVER = "192.0.2.2"


@contextlib.contextmanager
def network() -> Iterator[None]:
    """Have a network namespace on a pair of virtual interfaces while this lasts."""
    near = f"cnoise{os.getpid() % 100000}"
    commands = (
        f"ip netns add {NAMESPACE}",
        f"ip link add {near} type veth peer name far netns {NAMESPACE}",
        f"ip addr add 192.0.2.1/30 dev {near}",
        f"ip link set {near} up",
        f"ip -n {NAMESPACE} addr add {SERVER}/30 dev far",
        f"ip -n {NAMESPACE} link set far up",
    )
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["ip", "netns", "delete", NAMESPACE], check=False, capture_output=True)


def stop(group: Group, processes: list[subprocess.Popen[bytes]]) -> None:
    """End a group's processes: those that we started, and those that they did (fio's jobs leave its session)."""
    group.end()
    for process in processes:
        process.wait(timeout=20)
