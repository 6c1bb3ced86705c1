"""What NUMA nodes use, from a tree of two and from this machine."""

import pathlib

import pytest

from cotenant.kernel import numa, paths, topology
from cotenant.model.node import Cpu, Topology

MEMINFO = """Node {0} MemTotal:       1000 kB
Node {0} MemFree:         300 kB
Node {0} MemUsed:         700 kB
Node {0} Active(file):    100 kB
Node {0} Inactive(file):  150 kB
Node {0} SReclaimable:     50 kB
"""
TWO = Topology(cpus=(Cpu(0, 0, 0, 0), Cpu(1, 1, 0, 0), Cpu(2, 2, 1, 1)))


@pytest.fixture
def root(tmp_path: pathlib.Path) -> paths.Root:
    (tmp_path / "proc").mkdir()
    stat = ["cpu 9 9 9 9 9 9 9 9", *(f"cpu{n} {n}1 1 2 1000 500 3 4 7 0 0" for n in (1, 2, 3)), "intr 1"]
    (tmp_path / "proc/stat").write_text("\n".join(stat).replace("cpu3", "cpu0") + "\n")
    for node in (0, 1):
        directory = tmp_path / f"sys/devices/system/node/node{node}"
        directory.mkdir(parents=True)
        (directory / "meminfo").write_text(MEMINFO.format(node))
    return paths.Root(tmp_path)


def test_ticks_and_memory_of_each_node(root: paths.Root) -> None:
    found = numa.NumaReader(root).read(TWO)
    # cpu0 31+1+2+3+4 and cpu1 11+1+2+3+4; idle, iowait and steal are not used
    assert (found[0].cpus, found[0].busy_ticks) == (2, 41 + 21)
    assert (found[1].cpus, found[1].busy_ticks) == (1, 31)
    assert found[0].memory_total_bytes == 1000 * 1024
    assert found[0].memory_used_bytes == 400 * 1024
    assert found[0].memory_not_free_bytes == 700 * 1024


def test_what_a_file_does_not_say_is_unknown(root: paths.Root) -> None:
    base = root.sys / "devices/system/node"
    (base / "node0/meminfo").write_text("Node 0 MemTotal: 1000 kB\nNode 0 MemFree: 300 kB\n")
    (base / "node1/meminfo").unlink()
    (root.proc / "stat").write_text("cpu 1 1 1 1\ncpu0 1 1\ncpu1 1 1 1 1 1 1 1\n")
    found = numa.NumaReader(root).read(TWO)
    assert (found[0].busy_ticks, found[1].busy_ticks) == (None, None)
    assert (found[0].memory_used_bytes, found[0].memory_not_free_bytes) == (None, 700 * 1024)
    assert found[1] == numa.NumaState(cpus=1)


def test_this_machine_makes_sense() -> None:
    root = paths.Root()
    cpus = topology.read(root)
    found = numa.NumaReader(root).read(cpus)
    assert sum(state.cpus for state in found.values()) == len(cpus.cpus)
    for state in found.values():
        assert state.busy_ticks
        if state.memory_total_bytes is None:
            pytest.skip("this kernel has no files of NUMA nodes")
        assert state.memory_used_bytes is not None
        assert state.memory_not_free_bytes is not None
        assert 0 < state.memory_used_bytes <= state.memory_not_free_bytes <= state.memory_total_bytes
