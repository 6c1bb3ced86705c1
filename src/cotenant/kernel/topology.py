"""CPUs, where they are, and how much memory there is: the node when nobody else describes it."""

import os
import re

from cotenant.kernel import paths
from cotenant.model.node import Cpu, Node, Topology
from cotenant.units import cpulist

_MEM_TOTAL = re.compile(r"^MemTotal:\s*(\d+) kB", re.MULTILINE)
_CPU_DIRECTORY = re.compile(r"cpu(\d+)")
_NODE_DIRECTORY = re.compile(r"node(\d+)")


def read(root: paths.Root) -> Topology:
    """Return the online CPUs with core, socket and NUMA node; what the kernel does not say counts as one of each.

    No CPUs where nothing lists them: what works with CPUs is skipped then.
    """
    base = root.sys / "devices" / "system"
    ids = _online(root)
    numa = _numa_nodes(root)
    cpus = []
    for cpu in sorted(ids):
        place = base / "cpu" / f"cpu{cpu}" / "topology"
        core, socket = _integer(place / "core_id"), _integer(place / "physical_package_id")
        # Without topology each CPU is a core of its own: taking two as siblings would be a guess.
        cpus.append(Cpu(cpu, cpu if core is None else core, max(socket or 0, 0), numa.get(cpu, 0)))
    return Topology(cpus=tuple(cpus))


def node(root: paths.Root, topology: Topology) -> Node:
    """Return the node by its own files: all CPUs and all memory; None for what they do not say."""
    match = _MEM_TOTAL.search(text(root.proc / "meminfo") or "")
    return Node(
        capacity_millicores=len(topology.cpus) * 1000 or None,
        capacity_memory_bytes=int(match[1]) * 1024 if match else None,
    )


def _online(root: paths.Root) -> frozenset[int]:
    base = root.sys / "devices" / "system" / "cpu"
    online = text(base / "online")
    if online:
        try:
            return cpulist.parse(online)
        except cpulist.BadCpuList:
            return frozenset()
    listed = {int(match[1]) for name in _names(base) if (match := _CPU_DIRECTORY.fullmatch(name))}
    if listed:
        return frozenset(listed)
    counted = re.findall(r"^cpu(\d+) ", text(root.proc / "stat") or "", re.MULTILINE)
    counted = counted or re.findall(r"^processor\s*: (\d+)$", text(root.proc / "cpuinfo") or "", re.MULTILINE)
    return frozenset(map(int, counted))


def _numa_nodes(root: paths.Root) -> dict[int, int]:
    base = root.sys / "devices" / "system" / "node"
    found: dict[int, int] = {}
    for name in _names(base):
        match = _NODE_DIRECTORY.fullmatch(name)
        if match is None:
            continue
        try:
            found |= dict.fromkeys(cpulist.parse(text(base / name / "cpulist") or ""), int(match[1]))
        except cpulist.BadCpuList:
            continue  # an odd file places nobody; its CPUs count as of node 0
    return found


def _names(directory: os.PathLike[str]) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def text(path: os.PathLike[str]) -> str | None:
    """Return what a file holds, without white space around it, or None where it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def _integer(path: os.PathLike[str]) -> int | None:
    try:
        return int(text(path) or "")
    except ValueError:
        return None
