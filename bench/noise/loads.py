"""The noises, each at two strengths, and the online work beside them; all in control groups of their own.

Whatever is started here ends with its parent (PR_SET_PDEATHSIG) and by itself after :data:`LIMIT_SECONDS`.
"""

import contextlib
import ctypes
import dataclasses
import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from cotenant.kernel import paths
from cotenant.model.evaluation import DetectionName

MIB = 1 << 20
NOISE_BYTES = 512 * MIB
LIMIT_SECONDS = 55
"""No noise goes on for longer, unless a stage says so."""
END_SECONDS = 180
"""How long what was killed may take to go: a disk that stands still holds it."""
WEIGHT = 10
"""All of it weighs ten times what any other task of the machine does, so that others' load decides little."""
PR_SET_PDEATHSIG = 1

SPIN = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"
PAGES = """
import mmap, random, sys, time
end = time.monotonic() + float(sys.argv[2])
with open(sys.argv[1], "rb") as file:
    data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
pages = len(data) // 4096
while time.monotonic() < end:
    for _ in range(64):
        data[random.randrange(pages) * 4096]
"""
BUFFERED = """
import ctypes, os, random, sys, time
end = time.monotonic() + float(sys.argv[2])
file, libc, data = os.open(sys.argv[1], os.O_RDWR), ctypes.CDLL(None), os.urandom(1 << 20)
chunks = os.fstat(file).st_size >> 20
while time.monotonic() < end:
    for _ in range(int(sys.argv[3])):
        os.pwrite(file, data, random.randrange(chunks) << 20)
    libc.syncfs(file)  # written back by kernel threads, not by this process
"""


def end_with_parent() -> None:
    """Have the calling process end with its parent; for ``preexec_fn``."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpriority(os.PRIO_PROCESS, 0, 0)  # whoever samples may have more


class Group:
    """One control group: on v1 the same path in each hierarchy, and in the v2 tree, which has its pressure."""

    def __init__(self, path: str) -> None:
        mounts = paths.Root().cgroup_mounts()
        wanted = {"cpu", "cpuacct", "memory", "blkio", "io"}
        self.path = path
        self.directories = sorted({m.path / path for m in mounts if m.version == 2 or m.controllers & wanted})
        for mount in mounts:
            if mount.version == 2:
                self._hand_down(mount.path, mount.controllers & wanted)
        for directory in self.directories:
            directory.mkdir(parents=True)

    def _hand_down(self, top: pathlib.Path, controllers: frozenset[str]) -> None:
        above = top
        for part in pathlib.PurePath(self.path).parts:
            for name in sorted(controllers):
                (above / "cgroup.subtree_control").write_text(f"+{name}")
            above /= part

    def enter(self) -> None:
        """Move the calling process in, and have it end with its parent; for ``preexec_fn``."""
        end_with_parent()
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(os.getpid()))

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command in the group, in a session of its own."""
        return subprocess.Popen(
            command, preexec_fn=self.enter, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def end(self) -> None:
        """End every process in the group, and wait until none is left."""
        deadline = time.monotonic() + END_SECONDS
        while pids := {int(pid) for pid in (self.directories[0] / "cgroup.procs").read_text().split()}:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path}: {sorted(pids)} do not end")
            time.sleep(0.05)

    def write(self, name: str, value: str) -> None:
        """Write a file of the group, in whichever hierarchies have it."""
        for directory in self.directories:
            if (directory / name).exists():
                (directory / name).write_text(value)

    def weigh(self, times: float) -> None:
        """Weigh so many times what a group usually does."""
        self.write("cpu.shares", str(round(1024 * times)))
        self.write("cpu.weight", str(round(100 * times)))

    def limit_memory(self, limit: int | None) -> None:
        """Set the group's memory limit; None takes it away."""
        self.write("memory.limit_in_bytes", str(limit or -1))
        self.write("memory.max", str(limit or "max"))

    def idle(self, on: bool) -> None:
        """Have the whole group run only where nobody else wants to."""
        self.write("cpu.idle", str(int(on)))

    def remove(self) -> None:
        """Remove it, waiting for processes that are just ending."""
        for directory in self.directories:
            deadline = time.monotonic() + END_SECONDS
            while True:
                try:
                    directory.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)


class Stage:
    """Two groups below one, files to work on, and the online work."""

    def __init__(
        self, top: Group, online: Group, offline: Group, files: pathlib.Path, network: "Network | None"
    ) -> None:
        self.top = top
        self.online = online
        self.offline = offline
        self.files = files
        self.network = network
        self.cpus = len(os.sched_getaffinity(0))
        self.limit_seconds = LIMIT_SECONDS
        self._started: list[subprocess.Popen[bytes]] = []

    def start_online(self, seconds: float) -> list[pathlib.Path]:
        """Start one server for each CPU; return their logs."""
        logs = [self.files / f"online-{number}.log" for number in range(self.cpus)]
        script = str(pathlib.Path(__file__).with_name("online.py"))
        for log in logs:
            self._started.append(self.online.spawn(sys.executable, script, str(self.files), str(seconds), str(log)))
        return logs

    def is_working(self) -> bool:
        """Return whether everything that was started still goes on, or was ended here."""
        return all(process.poll() in (None, -signal.SIGKILL) for process in self._started)

    def spawn(self, *command: str) -> None:
        """Start a part of a noise."""
        self._started.append(self.offline.spawn(*command))

    def python(self, script: str, *arguments: object) -> None:
        """Start a part of a noise that is a few lines of Python."""
        self.spawn(sys.executable, "-c", script, *map(str, arguments))

    def stop_noise(self) -> None:
        """End the noise, and give back what it was given."""
        self.offline.end()
        self.top.limit_memory(None)
        self.offline.limit_memory(None)
        self.offline.idle(False)  # before the weight, which an idle group does not take
        self.offline.weigh(1)


def forget(file: pathlib.Path) -> None:
    """Drop a file from the page cache: what it holds is charged to whoever read or wrote it first, limit or none."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _io(stage: Stage, strength: int) -> None:
    # Small requests at a depth, or one sequential reader, hurt nobody on a healthy disk: these are large and many.
    # Threads, not processes: they end with their parent.
    options = [f"--filename={stage.files / 'noise'}", "--thread", "--direct=1", "--ioengine=libaio", "--rw=randread"]
    options += [f"--bs={'1m' if strength else '256k'}", "--iodepth=64", f"--numjobs={4 if strength else 2}"]
    options += [f"--size={NOISE_BYTES}"]
    stage.spawn("fio", "--name=noise", *options, "--time_based", f"--runtime={stage.limit_seconds}")


def _io_buffered(stage: Stage, strength: int) -> None:
    for _ in range(8 if strength else 4):
        stage.python(BUFFERED, stage.files / "noise", stage.limit_seconds, 64)


def _memory(stage: Stage, strength: int) -> None:
    # A file three times the limit: that of the noise alone, or that of both groups, which then evict each other.
    forget(stage.files / "noise")
    limited = stage.top if strength else stage.offline
    limited.limit_memory(NOISE_BYTES // 3)
    for _ in range(4):
        stage.python(PAGES, stage.files / "noise", stage.limit_seconds)


def _cpu(stage: Stage, strength: int) -> None:
    stage.offline.weigh(16 if strength else 4)
    for _ in range(stage.cpus * (4 if strength else 2)):
        stage.python(SPIN, stage.limit_seconds)


def _softirq(stage: Stage, strength: int) -> None:
    assert stage.network is not None
    stage.offline.weigh(16 if strength else 4)
    stage.network.flood(stage, streams=stage.cpus * (2 if strength else 1))


@dataclasses.dataclass(frozen=True)
class Noise:
    """One noise: what must be detected, and how it is started at a strength (0 moderate, 1 strong)."""

    name: str
    kind: DetectionName | None
    start: Callable[[Stage, int], None]


def _sequential(stage: Stage, strength: int) -> None:
    del strength
    options = ["--rw=read", "--bs=128k", "--direct=1", "--ioengine=psync", f"--size={NOISE_BYTES}", "--thread"]
    options += [f"--filename={stage.files / 'noise'}", "--time_based", f"--runtime={stage.limit_seconds}"]
    stage.spawn("fio", "--name=reader", *options)


def _idle(stage: Stage, strength: int) -> None:
    del strength
    stage.offline.idle(True)
    script = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n" + SPIN
    for _ in range(stage.cpus * 2):
        stage.python(script, stage.limit_seconds)


NOISES = (
    Noise("io", "ioCongestion", _io),
    Noise("io-buffered", "ioCongestion", _io_buffered),
    Noise("memory", "memoryPressure", _memory),
    Noise("cpu", "cpuContention", _cpu),
    Noise("softirq", "cpuContention", _softirq),
    Noise("sequential", None, _sequential),
    Noise("idle", None, _idle),
)
"""The last two hurt nobody: nothing may be detected."""
STRENGTHS = ("moderate", "strong")


class Network:
    """A network namespace on a pair of virtual interfaces, for a flood of small packets.

    What arrives is handled by soft interrupts of every CPU in turn (RPS), as that of a card with one queue.
    """

    ADDRESS = "198.18.77.2"

    def __init__(self) -> None:
        number = os.getpid()
        self._name = f"noise-{number}"
        self._near = f"nz{number}"

    def __enter__(self) -> "Network":
        commands = (
            f"ip netns add {self._name}",
            f"ip link add {self._near} type veth peer name far netns {self._name}",
            f"ip addr add 198.18.77.1/30 dev {self._near}",
            f"ip link set {self._near} up",
            f"ip -n {self._name} addr add {self.ADDRESS}/30 dev far",
            f"ip -n {self._name} link set far up",
        )
        try:
            for command in commands:
                subprocess.run(command.split(), check=True, capture_output=True)
            mask = f"{(1 << (os.cpu_count() or 1)) - 1:x}"
            spread = f"echo {mask} > /sys/class/net/far/queues/rx-0/rps_cpus"
            subprocess.run(["ip", "netns", "exec", self._name, "sh", "-c", spread], check=True, capture_output=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["ip", "link", "delete", self._near], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", self._name], check=False, capture_output=True)

    def flood(self, stage: Stage, streams: int) -> None:
        """Send 64-byte datagrams as fast as they go."""
        stage.spawn("ip", "netns", "exec", self._name, "iperf3", "-s", "-p", "5999")
        again = 'until "$@"; do sleep 0.2; done'  # the server may not listen yet
        client = ("sh", "-c", again, "sh", "iperf3", "-c", self.ADDRESS, "-p", "5999", "-u", "-b", "0", "-l", "64")
        stage.spawn(*client, "-P", str(streams), "-t", str(stage.limit_seconds))


def _fill(file: pathlib.Path, size: int) -> None:
    with file.open("wb") as target:
        for _ in range(size // MIB):
            target.write(os.urandom(MIB))
        target.flush()
        os.fsync(target.fileno())


@contextlib.contextmanager
def stage(directory: pathlib.Path, network: Network | None = None) -> Iterator[Stage]:
    """Have the groups and the files while this lasts; every process in the groups is ended before they go."""
    name = f"noise-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    groups: list[Group] = []
    for file, size in (("noise", NOISE_BYTES), ("online-direct", 64 * MIB), ("online-mapped", 48 * MIB)):
        _fill(directory / file, size)
    built = None
    try:
        for path in (name, f"{name}/online", f"{name}/offline"):
            groups.append(Group(path))
        groups[0].weigh(WEIGHT)
        built = Stage(*groups, directory, network)
        yield built
    finally:
        for group in reversed(groups):
            group.end()
        for process in built._started if built else []:
            process.wait(timeout=END_SECONDS)
        for group in reversed(groups):
            group.remove()


def missing(*programs: str) -> str | None:
    """Return what this machine lacks for the noises, or None."""
    if os.geteuid() != 0:
        return "control groups need root"
    lacking = [program for program in programs if not shutil.which(program)]
    return f"not installed: {', '.join(lacking)}" if lacking else None
