"""The loop that acts, on this machine's own cgroups, with real noise: short, bounded, and gone afterwards."""

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.process import COTENANT, end, tail
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.act.isolate import Parameters
from cotenant.detect import engine, parser
from cotenant.kernel import executor, paths, sampler, undo
from cotenant.local import enforcement, groups
from cotenant.model.evaluation import DetectionName, Evaluation
from cotenant.model.sample import Sample

pytestmark = pytest.mark.real

MIB = 1 << 20
TICKS = 6
CURE_SECONDS = 200
"""The longest that a cure may take, and the noise to be there: where all CPUs are taken, offline work waits for one."""
LIMIT_SECONDS = 2 * CURE_SECONDS + 50
"""No command goes on for longer."""
ONLINE = """
import mmap, os, sys, time
file, block, number = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096), 0
while True:
    time.sleep(0.002)
    number += 1
    os.preadv(file, [block], number % 2048 * 4096)
"""
PAGES = """
import mmap, random, sys
with open(sys.argv[1], "rb") as file:
    data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
while True:
    data[random.randrange(len(data) // 4096) * 4096]
"""
RULES = """
apiVersion: cotenant.io/v1alpha1
kind: DetectionRuleConfig
metadata: {name: quick}
spec:
  preset: default
  windowSeconds: 4
  hysteresis: {leaveForSeconds: 3, minHoldSeconds: 5}
"""


class Tick(NamedTuple):
    sample: Sample
    evaluation: Evaluation


def with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


class Host:
    """Commands in managed groups, a sampler and an engine."""

    def __init__(self, name: str, log: pathlib.Path) -> None:
        self.name, self.log = name, log
        self.root = paths.Root()
        self.commands: list[subprocess.Popen[bytes]] = []
        self.sampler = sampler.open_sampler(self.root)
        self.engine = engine.Engine(parser.parse(RULES, "quick.yaml")[0].rules)
        self.sampler.prime()
        self._due = time.monotonic()

    def run(self, qos: str, *command: str, options: tuple[str, ...] = ()) -> str:
        name = f"{self.name}-{len(self.commands)}"
        ending = ("timeout", "-k", "1", str(LIMIT_SECONDS), *command)
        words = (*COTENANT, "run", "--qos", qos, "--name", name, *options, "--", *ending)
        with self.log.open("a") as log:
            self.commands.append(subprocess.Popen(words, preexec_fn=with_parent, stdout=log, stderr=log))
        path = f"cotenant-{qos.lower()}/{name}"
        mount = self.root.hierarchy("cpu")
        assert mount is not None
        procs = mount.path / path / "cgroup.procs"
        await_true(lambda: procs.read_text().strip(), f"{path} has a process", said=lambda: tail(self.log))
        return path

    def file(self, controller: str, group: str, name: str) -> pathlib.Path:
        mount = self.root.hierarchy(controller)
        assert mount is not None
        return mount.path / group / name

    def tick(self) -> Tick:
        self._due = max(self._due + 1, time.monotonic())
        time.sleep(max(0.0, self._due - time.monotonic()))
        sample = self.sampler.sample()
        return Tick(sample, self.engine.evaluate(sample))

    def end(self, number: int) -> None:
        end(self.commands[number], log=self.log)

    def close(self) -> None:
        for command in self.commands:
            if command.poll() is None:
                command.terminate()
        for command in self.commands:
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(PATIENCE_SECONDS)
        self.sampler.close()
        managed = groups.Groups(self.root)
        for record in managed.records():
            if record.name.startswith(self.name):
                for pid in managed.members(record.path):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await_true(lambda path=record.path: managed.remove(path), "the group is removed")
                managed.forget(record.name)


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Iterator[Host]:
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    root = paths.Root()
    cpu = root.hierarchy("cpu")
    if cpu is None or not os.access(cpu.path, os.W_OK):
        pytest.skip("no writable cpu hierarchy")
    found = Host(f"e{os.getpid()}", tmp_path / "commands.log")
    yield found
    found.close()


def quota(host: Host, group: str) -> str:
    cpu = host.root.hierarchy("cpu")
    assert cpu is not None
    name = "cpu.cfs_quota_us" if cpu.version == 1 else "cpu.max"
    return host.file("cpu", group, name).read_text().split()[0]


def test_up_holds_offline_commands_back_keeps_that_when_it_ends_and_restore_undoes_it(
    host: Host, tmp_path: pathlib.Path
) -> None:
    be, ls = host.run("BE", "sh", "-c", "while :; do :; done"), host.run("LS", "sleep", "900")
    none = quota(host, "cotenant-be")
    words = (*COTENANT, "up", "--enforce", "--no-web", "--data", str(tmp_path / "data"))
    log = tmp_path / "up.log"
    with log.open("w") as output:
        up = subprocess.Popen(words, preexec_fn=with_parent, stdout=output, stderr=output)
    try:
        await_true(lambda: quota(host, "cotenant-be") != none, "the quota of offline work", said=lambda: tail(log))
    finally:
        assert end(up, log=log) == 0
    held = quota(host, "cotenant-be")
    assert int(held) < 100_000 * (os.cpu_count() or 1)
    assert quota(host, be) == quota(host, ls) == none
    if host.file("cpu", be, "cpu.idle").exists():
        assert host.file("cpu", be, "cpu.idle").read_text().strip() == "1"
        assert host.file("cpu", ls, "cpu.idle").read_text().strip() == "0"
    restoration = undo.restore(executor.Executor(host.root))
    assert_let_go(host, be, ls)
    assert not [left.path for left in restoration.failed if "/cotenant-" in left.path]


def assert_let_go(host: Host, *groups: str) -> None:
    """Assert that groups are gone with their limits while their commands go on, back where they came from."""
    controllers = [name for name in ("cpu", "memory", "blkio") if host.root.hierarchy(name)]
    files = [host.file(name, group, "cgroup.procs") for name in controllers for group in groups]
    assert not [file for file in files if file.exists()]
    assert all(command.poll() is None for command in host.commands)


def test_a_steady_state_makes_no_writes(host: Host) -> None:
    host.run("BE", "sleep", "900")
    host.run("LS", "sleep", "900")
    loop = enforcement.Enforcement(host.root, enforcement.Settings())
    tick = host.tick()
    loop.round(tick)
    loop.round(tick)
    before = loop.writer.writes_total
    for _ in range(60):
        loop.round(tick)
    assert loop.writer.writes_total == before
    loop.restore()


def cpu_seconds(host: Host, group: str) -> float:
    """Return the CPU time that the kernel says a group has had."""
    cpuacct = host.root.hierarchy("cpuacct")
    if cpuacct is not None and cpuacct.version == 1:
        return int(host.file("cpuacct", group, "cpuacct.usage").read_text()) / 1e9
    text = host.file("cpu", group, "cpu.stat").read_text()
    return int(dict(line.split() for line in text.splitlines())["usage_usec"]) / 1e6


def test_the_ledger_agrees_with_the_kernels_own_account(host: Host) -> None:
    """One task a CPU, held to a part of them: what it got and what the quota kept from it are both measured."""
    cpus = os.cpu_count() or 1
    command = f"i=0; while [ $i -lt {cpus} ]; do sh -c 'while :; do :; done' & i=$((i + 1)); done; wait"
    be = host.run("BE", "sh", "-c", command)
    loop = enforcement.Enforcement(host.root, enforcement.Settings())
    for _ in range(3):
        loop.round(host.tick())
    for _ in range(20):
        before, first = loop.state().ledger.accounts[be], cpu_seconds(host, be)
        started, allowed = time.monotonic(), 0.0
        for _ in range(TICKS):
            held = quota(host, "cotenant-be")
            allowed += int(held) / 100_000 if held not in ("-1", "max") else cpus
            loop.round(host.tick())
        seconds, got = time.monotonic() - started, cpu_seconds(host, be) - first
        spent = loop.state().ledger.accounts[be].less(before)
        if got > 0.7 * allowed and seconds < 1.2 * TICKS:  # a machine that stood still between two ticks tells nothing
            break
    else:
        loop.restore()
        pytest.skip("other work on this machine leaves offline work less than its quota, or it stands still")
    loop.restore()
    assert spent.delivered_core_seconds == pytest.approx(got, rel=0.2)
    assert spent.suppressed_core_seconds > 0.2
    assert spent.asked_core_seconds == pytest.approx(spent.delivered_core_seconds + spent.suppressed_core_seconds)
    assert spent.asked_core_seconds <= cpus * seconds * 1.15
    assert spent.measured_seconds == pytest.approx(seconds, rel=0.2)


def cure(host: Host, kind: DetectionName, victim: str, be: str) -> enforcement.Enforcement:
    """Run the loop until the victim has recovered; return it."""
    settings = enforcement.Settings(isolation=Parameters(look_seconds=4, steps_max=8))
    loop = enforcement.Enforcement(host.root, settings)
    deadline = time.monotonic() + CURE_SECONDS
    stalled, told, waited, hurt = [], [], [], False
    while time.monotonic() < deadline:
        tick = host.tick()
        loop.round(tick)
        isolation, detection = loop.state().isolation, tick.evaluation.detections[kind]
        stalled += [g.psi.io_some_ratio or 0.0 for g in tick.sample.cgroups if g.path == victim]
        waited += [g.psi.cpu_some_ratio or 0.0 for g in tick.sample.cgroups if g.path == be]
        told.append(f"{detection.triggered} {detection.index} {isolation}")
        if detection.triggered and not hurt:
            hurt, deadline = True, time.monotonic() + CURE_SECONDS
        # Where other work takes the CPUs, that is held against the noise first.
        if isolation is not None and isolation.recovered and isolation.detection == kind:
            assert isolation.suspect == be
            assert isolation.recovery_seconds is not None
            assert stalled[-1] < max(stalled)
            return loop
    loop.restore()
    if not hurt and waited and statistics.fmean(waited) > 0.5:
        pytest.skip("other work on this machine leaves the noise no CPU: it hurts nobody")
    host.end(-1)
    if is_hurt_by_others(host):
        pytest.skip("other work on this machine hurts the online work without this noise too: nothing cures that")
    pytest.fail("\n".join([f"no recovery in {CURE_SECONDS} s", *told]))


def is_hurt_by_others(host: Host) -> bool:
    """Return whether the online work is hurt again once the noise has ended and no tick of it counts any more."""
    ticks = [host.tick() for _ in range(30)]
    return any(found.triggered for tick in ticks[15:] for found in tick.evaluation.detections.values())


def blkio_limits(host: Host, group: str) -> str:
    blkio = host.root.hierarchy("blkio")
    if blkio is None:
        return host.file("io", group, "io.max").read_text()
    names = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
    return "".join(host.file("blkio", group, name).read_text() for name in names)


@pytest.fixture
def files(host: Host) -> Iterator[pathlib.Path]:
    """A directory on a real disk, with the files that online work and the noise read."""
    directory = pathlib.Path("/var/tmp") / f"cotenant-{host.name}"
    directory.mkdir()
    (directory / "online").write_bytes(os.urandom(8 * MIB))
    with (directory / "noise").open("wb") as file:
        for _ in range(256):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
        # What is in the page cache already is nobody's to thrash.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    yield directory
    host.close()
    shutil.rmtree(directory)


def test_a_disk_antagonist_is_stepped_down_and_the_victim_recovers(host: Host, files: pathlib.Path) -> None:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    victim = host.run("LS", sys.executable, "-c", ONLINE, str(files / "online"))
    for _ in range(12):
        host.tick()
    # Many large reads at once: 256 MiB in flight are far past the threshold on a fast disk, too.
    options = ["--size=256M", "--direct=1", "--ioengine=libaio", "--rw=randread", "--bs=1m", "--iodepth=64"]
    options += [f"--filename={files / 'noise'}", "--numjobs=4", "--time_based", f"--runtime={LIMIT_SECONDS}"]
    be = host.run("BE", "fio", "--name=noise", *options)
    loop = cure(host, "ioCongestion", victim, be)
    assert blkio_limits(host, be).strip()
    loop.restore()
    assert_let_go(host, be)


def test_a_memory_antagonist_is_stepped_down_and_the_victim_recovers(host: Host, files: pathlib.Path) -> None:
    victim = host.run("LS", sys.executable, "-c", ONLINE, str(files / "online"))
    for _ in range(12):
        host.tick()
    command = f"for i in 1 2 3 4 5 6; do {sys.executable} -c '{PAGES}' {files / 'noise'} & done; wait"
    be = host.run("BE", "sh", "-c", command, options=("--memory", "85M"))
    loop = cure(host, "memoryPressure", victim, be)
    assert blkio_limits(host, be).strip()
    loop.restore()
    assert_let_go(host, be)
