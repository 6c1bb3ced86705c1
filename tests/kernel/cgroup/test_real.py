"""Groups of this machine's own kernel: what tasks do in them is what the sample says."""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.waiting import await_true

from cotenant.kernel import paths, sampler
from cotenant.kernel.cgroup import classes, counters
from cotenant.model.sample import Cgroup

pytestmark = pytest.mark.real

CONTROLLERS = {"cpu", "cpuacct", "memory", "blkio"}
BURN = "import time\nend = time.monotonic() + 900\nwhile time.monotonic() < end: pass"
WRITE = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
print("open", flush=True)
sys.stdin.readline()
os.write(fd, b"x" * (8 << 20))
print("written", flush=True)
sys.stdin.readline()
"""


class Place:
    """An empty group in every hierarchy, below one of its own."""

    def __init__(self) -> None:
        self.path = f"cotenant-test-{os.getpid()}"
        mounts = [m for m in paths.Root().cgroup_mounts() if m.version == 2 or m.controllers & CONTROLLERS]
        self.directories = [mount.path / self.path for mount in mounts]
        self.children: list[subprocess.Popen[str]] = []

    def run(self, *words: str) -> "subprocess.Popen[str]":
        """Start a child of which every byte of work is done inside the group."""
        files = [str(directory / "cgroup.procs") for directory in self.directories]
        script = 'for f in $FILES; do echo $$ > "$f" || exit 1; done; exec "$@"'
        environment = {**os.environ, "FILES": " ".join(files)}
        command = ["sh", "-c", script, "sh", *words]
        child = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=True
        )
        self.children.append(child)
        return child

    def clean(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()
        for directory in self.directories:
            for _ in range(1_000):
                try:
                    directory.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.05)  # the last task is still on its way out


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    try:
        try:
            for directory in made.directories:
                directory.mkdir()
        except OSError as error:
            pytest.skip(f"cannot make control groups here: {error}")
        yield made
    finally:
        made.clean()


def line(source: sampler.Sampler, path: str) -> Cgroup:
    return next(group for group in source.sample().cgroups if group.path == path)


def test_cpu_time_and_stall_of_a_busy_group(place: Place) -> None:
    source = sampler.Sampler(matches=[classes.Match(place.path, "LS")])
    children = [place.run(sys.executable, "-c", BURN) for _ in range(2 * (os.cpu_count() or 1))]
    source.prime()

    def busy_and_stalled() -> bool:
        """Twice as many tasks as CPUs: somebody waits. How much they get depends on who else runs on this machine."""
        assert all(child.poll() is None for child in children)
        sample = source.sample()
        group = next(group for group in sample.cgroups if group.path == place.path)
        assert group.class_ == "online"
        if not group.cpu_used_ratio:
            return False
        assert group.cpu_used_ratio <= 1.0
        assert sample.online.cpu_used_ratio is not None
        assert sample.online.cpu_used_ratio >= group.cpu_used_ratio  # more where somebody else has online groups here
        if sample.missing.get("cgroups.psi.cpu_some_ratio") == "psi_disabled":
            return True
        return group.psi.cpu_some_ratio is not None and group.psi.cpu_some_ratio > 0.2

    await_true(busy_and_stalled, "CPU time and stall of the group", pause_seconds=1.0)
    source.close()


def test_writes_of_who_comes_while_samples_are_taken_are_booked_too(place: Place, tmp_path: pathlib.Path) -> None:
    # The first one is there before: only a list that was read once can be an old one.
    place.run("sleep", "900")
    source = sampler.Sampler()
    source.prime()
    for _ in range(3):
        time.sleep(0.2)
        source.sample()
    child = place.run(sys.executable, "-c", WRITE, str(tmp_path / "file"))
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    for _ in range(2):
        time.sleep(0.2)
        source.sample()
    child.stdin.write("go\n")
    child.stdin.flush()
    assert child.stdout.readline() == "written\n"
    time.sleep(0.2)
    sample = source.sample()
    source.close()
    group = next(group for group in sample.cgroups if group.path == place.path)
    if sample.missing.get("cgroups.write_bytes_per_sec") == "permission":
        pytest.skip("/proc/PID/io may not be read here")
    assert group.write_bytes_per_sec is not None
    assert sample.period_s is not None
    assert group.write_bytes_per_sec * sample.period_s > 1 << 20


def test_buffered_writes_are_booked_to_the_group(place: Place, tmp_path: pathlib.Path) -> None:
    child = place.run(sys.executable, "-c", WRITE, str(tmp_path / "file"))
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    source = sampler.Sampler()
    source.prime()
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "written\n"
    if paths.Root().cgroup_version() == "v2":
        os.sync()
    sample = source.sample()
    source.close()
    group = next(group for group in sample.cgroups if group.path == place.path)
    assert group.write_bytes_per_sec is not None
    assert sample.period_s is not None
    assert group.write_bytes_per_sec * sample.period_s == pytest.approx(8 << 20, rel=0.05)


def test_a_group_that_was_quiet_is_read_whole_when_it_wakes_up(place: Place, tmp_path: pathlib.Path) -> None:
    child = place.run(sys.executable, "-c", WRITE, str(tmp_path / "file"))
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    source = sampler.Sampler()
    source.prime()

    def rests() -> bool:
        return line(source, place.path) is line(source, place.path)

    await_true(rests, "two samples with the same line, since nothing ran", pause_seconds=0.2)
    for _ in range(counters.QUIET_READS):
        source.sample()
    child.stdin.write("go\n")
    child.stdin.flush()
    assert child.stdout.readline() == "written\n"
    if paths.Root().cgroup_version() == "v2":
        os.sync()
    sample = source.sample()
    source.close()
    group = next(group for group in sample.cgroups if group.path == place.path)
    assert group.write_bytes_per_sec is not None
    assert sample.period_s is not None
    assert group.write_bytes_per_sec * sample.period_s == pytest.approx(8 << 20, rel=0.05)


def test_a_group_that_is_removed_is_gone_from_the_next_sample(place: Place) -> None:
    source = sampler.Sampler()
    source.prime()
    assert line(source, place.path).cpu_used_ratio == 0.0
    for directory in place.directories:
        directory.rmdir()
    assert place.path not in {group.path for group in source.sample().cgroups}
    for directory in place.directories:
        directory.mkdir()
    assert line(source, place.path).cpu_used_ratio is None
    source.close()
