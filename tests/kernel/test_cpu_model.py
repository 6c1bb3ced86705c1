import pathlib

import pytest

from cotenant.kernel import cpu_model, paths
from cotenant.model.node import Cpu, Topology

THREADED = Topology(cpus=(Cpu(0, 0), Cpu(1, 0), Cpu(2, 1), Cpu(3, 1)))
PLAIN = Topology(cpus=(Cpu(0, 0), Cpu(1, 1)))
X86 = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R)  Xeon(R) Gold 6338 CPU @ 2.00GHz\n"
KUNPENG = "processor\t: 0\nBogoMIPS\t: 200.00\nCPU implementer\t: 0x48\nCPU architecture: 8\nCPU part\t: 0xD01\n"


def tree(directory: pathlib.Path, **files: str) -> paths.Root:
    for name, text in files.items():
        path = (
            directory
            / {
                "cpuinfo": "proc/cpuinfo",
                "no_turbo": "sys/devices/system/cpu/intel_pstate/no_turbo",
                "boost": "sys/devices/system/cpu/cpufreq/boost",
            }[name]
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths.Root(directory)


@pytest.mark.parametrize(
    ("text", "name"),
    [(X86, "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz"), (KUNPENG, "ARM 0x48 0xd01"), ("CPU part\t: 0xd01\n", None)],
)
def test_the_name_of_the_model(tmp_path: pathlib.Path, text: str, name: str | None) -> None:
    assert cpu_model.read(tree(tmp_path, cpuinfo=text), PLAIN).name == name


@pytest.mark.parametrize(
    ("files", "turbo"),
    [({"no_turbo": "0\n"}, True), ({"no_turbo": "1\n"}, False), ({"boost": "1\n"}, True), ({"boost": "0\n"}, False),
     ({"no_turbo": "what\n"}, None), ({}, None)],
)  # fmt: skip
def test_turbo_by_either_driver(tmp_path: pathlib.Path, files: dict[str, str], turbo: bool | None) -> None:
    assert cpu_model.read(tree(tmp_path, **files), PLAIN).turbo is turbo


def test_two_cpus_of_a_core_are_hyper_threads(tmp_path: pathlib.Path) -> None:
    root = tree(tmp_path)
    assert cpu_model.read(root, THREADED).hyper_threads
    assert not cpu_model.read(root, PLAIN).hyper_threads
    assert cpu_model.read(root, PLAIN).name is None


@pytest.mark.real
def test_this_machine_has_a_model() -> None:
    assert cpu_model.read(paths.Root(), PLAIN).name
