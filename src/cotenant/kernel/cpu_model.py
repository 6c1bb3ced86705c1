"""Which CPUs a machine has, and what of them is switched on: what Koordinator's ratios of CPU models go by."""

import dataclasses
import re

from cotenant.kernel import paths, topology
from cotenant.model.node import Topology

_MODEL = re.compile(r"^model name\s*:\s*(\S.*)$", re.MULTILINE)
_ARM = {name: re.compile(rf"^{name}\s*:\s*(0x[0-9a-fA-F]+)$", re.MULTILINE) for name in ("CPU implementer", "CPU part")}


@dataclasses.dataclass(frozen=True, slots=True)
class CpuModel:
    """The model's name, and whether hyper-threads and turbo are on; None is not known."""

    name: str | None
    hyper_threads: bool
    turbo: bool | None


def read(root: paths.Root, placed: Topology) -> CpuModel:
    """Return what ``/proc/cpuinfo`` and the frequency drivers say.

    ARM has no name there: it is made of the implementer's and the part's number, ``ARM 0x48 0xd01`` (Kunpeng 920).
    """
    cores = {(cpu.socket, cpu.node, cpu.core) for cpu in placed.cpus}
    return CpuModel(_name(root), len(cores) < len(placed.cpus), _turbo(root))


def _name(root: paths.Root) -> str | None:
    text = topology.text(root.proc / "cpuinfo") or ""
    match = _MODEL.search(text)
    if match:
        return " ".join(match[1].split())
    numbers = [match[1].lower() for pattern in _ARM.values() if (match := pattern.search(text))]
    return f"ARM {' '.join(numbers)}" if len(numbers) == len(_ARM) else None


def _turbo(root: paths.Root) -> bool | None:
    """Return whether turbo is on: intel_pstate says that it is not ``no_turbo``, other drivers that they ``boost``."""
    base = root.sys / "devices" / "system" / "cpu"
    for name, on in (("intel_pstate/no_turbo", "0"), ("cpufreq/boost", "1")):
        text = topology.text(base / name)
        if text in ("0", "1"):
            return text == on
    return None
