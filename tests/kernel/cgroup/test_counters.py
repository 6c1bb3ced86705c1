"""A group in which nothing happens costs few reads; whatever happens there is read at once."""

import pathlib
from collections.abc import Callable

import pytest

from cotenant.kernel.cgroup import counters
from cotenant.kernel.cgroup.counters import GroupCounters, GroupFiles
from cotenant.kernel.cgroup.v1 import V1Files
from cotenant.kernel.cgroup.v2 import V2Files


def disks() -> frozenset[bytes]:
    return frozenset({b"8:0"})


class V1Group:
    """A group of v1 with one directory for all controllers, as a kernel's (``live``) or as plain files."""

    def __init__(self, directory: pathlib.Path, *, live: bool) -> None:
        self.directory = directory
        self.use(1000)
        self.hold(4096, anon=100)
        self.write("cpu.stat", "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n")
        self.write("blkio.throttle.io_service_bytes_recursive", "8:0 Read 10\n8:0 Write 20\n9:0 Read 1\nTotal 31\n")
        by_controller = dict.fromkeys(("cpu", "cpuacct", "memory", "blkio"), str(directory))
        self.files: GroupFiles = V1Files(by_controller, None, disks, live=live)

    def write(self, name: str, content: str) -> None:
        (self.directory / name).write_text(content)

    def use(self, usec: int) -> None:
        self.write("cpuacct.usage", f"{usec * 1000}\n")

    def hold(self, held: int, anon: int) -> None:
        self.write("memory.usage_in_bytes", f"{held}\n")
        self.write("memory.stat", f"total_pgmajfault 3\ntotal_inactive_anon {anon}\ntotal_active_anon 0\n")

    def read(self) -> GroupCounters:
        found = self.files.read()
        assert found is not None
        return found


class V2Group(V1Group):
    def __init__(self, directory: pathlib.Path, *, live: bool) -> None:
        self.directory = directory
        self.use(1000)
        self.hold(4096, anon=100)
        self.write("io.stat", "8:0 rbytes=10 wbytes=20\n9:0 rbytes=1 wbytes=0\n")
        self.files = V2Files(str(directory), disks, live=live)

    def use(self, usec: int) -> None:
        self.write("cpu.stat", f"usage_usec {usec}\nnr_periods 1\nnr_throttled 0\n")

    def hold(self, held: int, anon: int) -> None:
        self.write("memory.current", f"{held}\n")
        self.write("memory.stat", f"pgmajfault 3\ninactive_anon {anon}\nactive_anon 0\n")


Make = Callable[..., V1Group]


@pytest.mark.parametrize("make", [V1Group, V2Group])
def test_a_group_that_did_nothing_has_the_same_counters(make: Make, tmp_path: pathlib.Path) -> None:
    group = make(tmp_path, live=True)
    first = group.read()
    assert (first.usage_usec, first.memory_anon_bytes, first.major_faults) == (1000, 100, 3)
    assert (first.read_bytes, first.write_bytes) == (10, 20)
    assert group.read() is first


@pytest.mark.parametrize("make", [V1Group, V2Group])
def test_what_only_tasks_change_is_read_again_when_one_ran_or_what_is_held_changed(
    make: Make, tmp_path: pathlib.Path
) -> None:
    group = make(tmp_path, live=True)
    for read in range(counters.QUIET_READS + 1):
        assert group.read().quiet == (read == counters.QUIET_READS)
    group.hold(4096, anon=200)
    assert group.read().memory_anon_bytes == 100
    group.use(1001)
    awake = group.read()
    assert not awake.quiet
    assert awake.memory_anon_bytes == 200
    for _ in range(counters.QUIET_READS):
        assert group.read().memory_anon_bytes == 200
    assert group.read().quiet
    group.hold(8192, anon=300)
    assert group.read().memory_anon_bytes == 300


@pytest.mark.parametrize("make", [V1Group, V2Group])
def test_plain_files_are_read_each_time(make: Make, tmp_path: pathlib.Path) -> None:
    group = make(tmp_path, live=False)
    for anon in range(counters.QUIET_READS + 3):
        group.hold(4096, anon=anon)
        found = group.read()
        assert not found.quiet
        assert found.memory_anon_bytes == anon


def test_a_group_without_its_time_is_never_quiet(tmp_path: pathlib.Path) -> None:
    group = V1Group(tmp_path, live=True)
    (tmp_path / "cpuacct.usage").unlink()
    for anon in range(counters.QUIET_READS + 3):
        group.hold(4096, anon=anon)
        assert group.read().memory_anon_bytes == anon


def test_a_file_is_parsed_only_when_it_says_something_else(tmp_path: pathlib.Path) -> None:
    seen: list[counters.Content] = []

    def parse(content: counters.Content, path: str) -> int:
        seen.append(content)
        return len(content)

    path = tmp_path / "file"
    path.write_text("a")
    file = counters.Parsed(counters.Source(str(path)), parse)
    assert [file.read(), file.read()] == [1, 1]
    path.write_text("ab")
    assert [file.read(), file.read()] == [2, 2]
    path.unlink()
    assert file.read() == len("gone")
    assert file.gone
    assert file.unknown
    assert seen == ["unsupported", b"a", b"ab", "gone"]
    file.close()


def test_bytes_on_disks_that_do_not_count_are_left_out_and_malformed_ones_there_do_no_harm() -> None:
    rows: counters.Rows = ((b"8:0", "read", 1), (b"8:16", "write", 2), (b"9:0", "read", "malformed"))
    assert counters.summed(rows, {b"8:0", b"8:16"}) == (1, 2)
    assert counters.summed(rows, frozenset()) == ("malformed", "malformed")
    assert counters.summed("permission", {b"8:0"}) == ("permission", "permission")
