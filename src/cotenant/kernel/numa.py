"""What each NUMA node uses: CPU ticks of its CPUs and its memory, raw. Read rarely: some files for each node.

Memory is ``MemTotal`` less what is free or can be dropped (file pages and reclaimable slab); the kernel says no
``MemAvailable`` of one NUMA node.
"""

import os
import re

import msgspec

from cotenant.kernel import errors, paths
from cotenant.kernel.file import File, number
from cotenant.model.node import Topology

_CPU = re.compile(rb"^cpu(\d+) (.*)$", re.MULTILINE)
_BUSY = (0, 1, 2, 5, 6)
"""The columns user, nice, system, irq and softirq: what counts as used for the node counts here."""
_LINE = re.compile(
    rb"^Node \d+ (MemTotal|MemFree|Active\(file\)|Inactive\(file\)|SReclaimable):\s*(\d+) kB", re.MULTILINE
)
_DROPPABLE = (b"MemFree", b"Active(file)", b"Inactive(file)", b"SReclaimable")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class NumaState(msgspec.Struct, frozen=True, kw_only=True):
    """One NUMA node at one moment; None is unknown."""

    cpus: int = 0
    busy_ticks: int | None = None
    """Since boot, of all its CPUs together, ``TICKS_PER_SECOND`` a second."""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_not_free_bytes: int | None = None


class NumaReader:
    """The NUMA nodes of a machine; no node at all where ``/sys`` names none."""

    def __init__(self, root: paths.Root) -> None:
        self._stat = File(root.proc / "stat")
        self._base = root.sys / "devices" / "system" / "node"

    def read(self, topology: Topology) -> dict[int, NumaState]:
        """Return the state of each NUMA node that a CPU of the topology belongs to."""
        ticks = self._ticks()
        found = {}
        for node in sorted({cpu.node for cpu in topology.cpus}):
            own = [cpu.id for cpu in topology.cpus if cpu.node == node]
            known = [ticks[cpu] for cpu in own if cpu in ticks]
            found[node] = self._memory(node, len(own), sum(known) if len(known) == len(own) else None)
        return found

    def _ticks(self) -> dict[int, int]:
        try:
            data = self._stat.read()
        except errors.KernelError:
            return {}
        found = {}
        for cpu, columns in _CPU.findall(data):
            words = columns.split()
            try:
                found[int(cpu)] = sum(number(words[column], self._stat.path) for column in _BUSY)
            except (errors.MalformedFile, IndexError):
                continue  # this CPU is unknown, and with it its node
        return found

    def _memory(self, node: int, cpus: int, ticks: int | None) -> NumaState:
        file = File(self._base / f"node{node}" / "meminfo")
        try:
            values = {name: int(kb) * 1024 for name, kb in _LINE.findall(file.read())}
        except errors.KernelError:
            values = {}
        finally:
            file.close()
        total, free = values.get(b"MemTotal"), values.get(b"MemFree")
        droppable = [values.get(name) for name in _DROPPABLE]
        known = [amount for amount in droppable if amount is not None]
        used = None if total is None or len(known) != len(droppable) else max(total - sum(known), 0)
        return NumaState(
            cpus=cpus,
            busy_ticks=ticks,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_not_free_bytes=None if total is None or free is None else max(total - free, 0),
        )

    def close(self) -> None:
        self._stat.close()
