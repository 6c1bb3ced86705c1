"""Run-queue latency as the scheduler's own events tell it (``bpf/run_queue.bpf.c``): per control group and together."""

import os
import struct
import time
from typing import Literal

from cotenant.kernel import paths
from cotenant.kernel.bpf import btf, counts
from cotenant.kernel.bpf.cost import Meter
from cotenant.kernel.bpf.entries import Entries
from cotenant.kernel.bpf.errors import BpfUnavailable
from cotenant.kernel.bpf.program import Object
from cotenant.kernel.tracing import GroupTrace
from cotenant.model.loss import LossReason
from cotenant.units.histogram import Histogram

Method = Literal["stamped", "tracked"]

SAMPLES_PER_CPU_PER_SEC = 500
"""Waits that are looked at on a busy machine. The rest costs some ten nanoseconds; a quantile needs no more."""
MAX_SAMPLING_SHIFT = 10
TOP_INODE = 1
"""The inode of a hierarchy's top directory."""
_AUTOGROUP = 0
"""The scheduler's automatic group of a session has no directory and no id; it is a part of the top."""

_SETTINGS = struct.Struct("=II")
_PROGRAMS: dict[Method, frozenset[str]] = {
    "stamped": frozenset({"switch_stamped"}),
    "tracked": frozenset({"wakeup", "wakeup_new", "switch_tracked"}),
}


class RunQueueProgram:
    """The loaded programs. :meth:`read` returns what was added since the last call, or since they were loaded.

    Time in which a group waited for its own quota counts, as the scheduler counts it.
    """

    def __init__(self, root: paths.Root, types: btf.Btf, method: Method | None = None) -> None:
        """Load and attach, by the method that this kernel has unless one is given.

        :raises BpfUnavailable: if this machine cannot; :attr:`reason` says why.
        :raises BpfCallFailed: if the kernel refuses; :attr:`reason` says why.
        """
        self.method: Method = method or choose_method(types)
        hierarchy = root.hierarchy("cpu")
        on_v1 = hierarchy is not None and hierarchy.version == 1
        settings = counts.pack_steps() + _SETTINGS.pack(not on_v1, 0)
        self.object = Object("run_queue", settings, _PROGRAMS[self.method])
        self._groups = Entries(self.object.map("groups"))
        self._lost = self.object.map("lost")
        self._sampling = self.object.map("sampling")
        self._wanted_per_sec = SAMPLES_PER_CPU_PER_SEC * (os.cpu_count() or 1)
        self._read_at = time.monotonic()
        self.sampling_shift = 0
        """One wait in 2^shift is looked at."""
        self.meter = Meter(self.object)

    def read(self) -> tuple[Histogram, dict[int, GroupTrace]]:
        """Return the waits of the whole node, and of each group by the inode of its directory, in microseconds.

        :raises BpfCallFailed: if the map cannot be read.
        """
        node: dict[int, int] = {}
        groups: dict[int, GroupTrace] = {}
        for key, new, old in self._groups.changed():
            gained = counts.added(_histogram(new), _histogram(old) if old else None)
            counts.merge(node, gained)
            inode = TOP_INODE if key == _AUTOGROUP else key
            groups.setdefault(inode, GroupTrace()).run_queue.merge(Histogram(gained))
        self._adapt(sum(node.values()))
        return Histogram(node), groups

    def _adapt(self, sampled: int) -> None:
        now = time.monotonic()
        seconds, self._read_at = now - self._read_at, now
        if seconds <= 0:
            return
        self.look_at(next_shift(self.sampling_shift, sampled / seconds, self._wanted_per_sec))

    def look_at(self, shift: int) -> None:
        """Look at one wait in 2^shift until the next read.

        :raises BpfCallFailed: if the map cannot be written.
        """
        if shift != self.sampling_shift:
            self._sampling.update(bytes(4), struct.pack("=I", (1 << shift) - 1))
            self.sampling_shift = shift

    def lost(self) -> dict[LossReason, int]:
        """Return how many of the waits that were looked at are in no count, since loading.

        :raises BpfCallFailed: if the map cannot be read.
        """
        return {"no_room": self._lost.count(0)}

    def close(self) -> None:
        """Detach and unload."""
        self.meter.close()
        self.object.close()


def choose_method(types: btf.Btf) -> Method:
    """Return how this kernel's waits are measured: by the scheduler's own stamp where it keeps one.

    :raises BpfUnavailable: ``no_bpf`` where the tracepoints are missing.
    """
    for name in ("sched_switch", "sched_wakeup", "sched_wakeup_new"):
        if types.tracepoint_arguments(name) is None:
            raise BpfUnavailable("no_bpf", f"this kernel has no tracepoint {name}")
    needed = (("task_struct", "sched_info"), ("sched_info", "last_queued"), ("cfs_rq", "rq"))
    return "stamped" if all(types.has_member(*member) for member in needed) else "tracked"


def next_shift(shift: int, sampled_per_sec: float, wanted_per_sec: float) -> int:
    """Return the sampling of the next period: at most what is wanted, more only if three quarters lack."""
    while sampled_per_sec > wanted_per_sec and shift < MAX_SAMPLING_SHIFT:
        sampled_per_sec, shift = sampled_per_sec / 2, shift + 1
    while sampled_per_sec * 4 < wanted_per_sec and shift > 0:
        sampled_per_sec, shift = sampled_per_sec * 2, shift - 1
    return shift


def _histogram(value: bytes) -> bytes:
    return value[: counts.HISTOGRAM_BYTES]
