import pathlib
import shutil
import subprocess

import pytest
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.kernel import paths
from cotenant.kernel.llc import probe
from cotenant.kernel.reading import Findings

SOURCE = pathlib.Path(__file__).parents[3] / "native" / "llc_probe.c"


def test_the_ratio_is_to_the_calm_of_the_machine():
    baseline = probe.Baseline()
    learnt = [baseline.ratio(value) for value in [60.0, 50.0, 300.0, *[55.0] * 7]]
    assert set(learnt[:9]) == {"too_few"}
    assert learnt[9] == pytest.approx(1.1)
    assert baseline.ratio(200.0) == pytest.approx(4.0, rel=0.01)


def test_one_low_reading_is_not_the_new_calm_but_many_are():
    baseline = probe.Baseline()
    for _ in range(10):
        baseline.ratio(100.0)
    assert baseline.ratio(50.0) == pytest.approx(50 / 85)
    for _ in range(20):
        baseline.ratio(50.0)
    assert baseline.ratio(50.0) == pytest.approx(1.0, rel=0.01)


def test_a_calm_that_is_gone_for_good_is_forgotten_slowly():
    baseline = probe.Baseline()
    for _ in range(10):
        baseline.ratio(100.0)
    ratios = [baseline.ratio(200.0) for _ in range(10_000)]
    assert ratios[600] > 1.85  # ten minutes of noise are still noise
    assert ratios[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/cpuinfo": "flags\t\t: fpu vme hypervisor lahf_lm\n"}, True),
        ({"proc/cpuinfo": "flags\t\t: fpu vme\n"}, False),
        ({"proc/cpuinfo": "Features\t: fp asimd\n", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, True),
        ({"sys/hypervisor/type": "xen\n"}, True),
        ({}, False),
    ],
)
def test_only_virtual_machines_are_probed(empty, files, expected):
    for path, text in files.items():
        empty.write(path, text)
    assert probe.is_virtual(empty.root) is expected


def test_a_tree_of_files_is_not_probed(empty):
    assert probe.open_probe(empty.root) == "not_enabled"


def test_a_failed_measure_is_unknown():
    found = Findings()
    probe.Probe(lambda: -1.0).read_into(found)
    assert found.missing == {"probe_ratio": "io_error"}


@pytest.mark.real
def test_the_library_builds_and_measures(tmp_path):
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    if not probe.is_virtual(paths.Root()):
        pytest.skip("bare metal: the probe refuses")
    library = tmp_path / "libllc_probe.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE], check=True, timeout=PATIENCE_SECONDS)
    assert probe.open_probe(paths.Root(), [tmp_path / "none.so"]) == "not_built"
    opened = probe.open_probe(paths.Root(), [library])
    reads = 0

    def in_range() -> bool:
        """Return whether a read is of the order of a calm one; a machine that stands still in it makes it long."""
        nonlocal reads
        found, reads = Findings(), reads + 1
        opened.read_into(found)
        return reads >= probe.LEARN_READS and 0.1 < found.values["probe_ratio"] < 100

    await_true(in_range, "a read of the order of a calm one")
