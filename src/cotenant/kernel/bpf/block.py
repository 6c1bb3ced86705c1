"""Block requests as the kernel's own events count them (``bpf/block.bpf.c``): per disk and per issuing group."""

import struct
import time
from collections.abc import Iterable

from cotenant.kernel import paths
from cotenant.kernel.bpf import btf, counts
from cotenant.kernel.bpf.cost import Meter
from cotenant.kernel.bpf.entries import Entries
from cotenant.kernel.bpf.errors import BpfUnavailable
from cotenant.kernel.bpf.program import Object
from cotenant.kernel.bpf.unseen import Unseen
from cotenant.kernel.tracing import DiskTrace, GroupTrace
from cotenant.model.loss import LossReason
from cotenant.units.histogram import Histogram

_SETTINGS = struct.Struct("=4IIIQ")
_PENDING = struct.Struct("=QQQQQ")
_TOTALS = struct.Struct("=QQQQ")
"""The end of a disk's or a group's entry: completions and bytes, each of reads and writes."""

_TRACEPOINTS = {
    "rq_issue": "block_rq_issue",
    "rq_complete": "block_rq_complete",
    "rq_requeue": "block_rq_requeue",
}
_NEEDED = frozenset({"rq_issue", "rq_complete"})
_IGNORED_MAJORS = {"loop": 7, "md": 9, "mdp": None, "device-mapper": None}
"""Drivers above the disks, with their major number where it is fixed: what they carry is seen again at the disk."""
_NO_MAJOR = 2**32 - 1
_ATTACH_NS = 1_000_000_000
"""Longer than loading takes: a request that is younger and was issued unseen was not issued before we were there."""
_REASONS: tuple[LossReason, ...] = ("no_room", "unseen")
"""The program's own, by the place in its map."""


class BlockProgram:
    """The loaded programs. What they read is what was added since the last call, or since they were loaded.

    A request belongs to the group that its bio was charged to: write-back of what went through the page cache is its
    writer's on v2, and the top's on v1.
    """

    def __init__(self, root: paths.Root, types: btf.Btf) -> None:
        """Load and attach.

        :raises BpfUnavailable: if this machine cannot; :attr:`reason` says why.
        :raises BpfCallFailed: if the kernel refuses; :attr:`reason` says why.
        """
        programs, request_argument = attachable(types)
        since_ns = time.monotonic_ns() + _ATTACH_NS
        settings = counts.pack_steps() + _SETTINGS.pack(*ignored_majors(root), request_argument, 0, since_ns)
        self.object = Object("block", settings, programs)
        self._requests = self.object.map("requests")
        self._devices = Entries(self.object.map("devices"))
        self._groups = Entries(self.object.map("groups"))
        self._lost = self.object.map("lost")
        self._unseen = Unseen(root)
        self._removed = 0
        self.meter = Meter(self.object)

    def disks(self) -> dict[tuple[int, int], DiskTrace]:
        """Return the disks that completed something or have something to complete, by major and minor number.

        :raises BpfCallFailed: if a map cannot be read.
        """
        found = {device: disk_trace(new, old) for device, new, old in self._devices.changed()}
        requests = dict(self._requests.items())
        issued = {key: where for key, value in requests.items() if (where := _issued(value))[1]}
        over, certain = self._unseen.over(issued, frozenset(found))
        for key in certain:
            self._requests.delete(key)
        self._removed += len(certain)
        add_pending(found, (value for key, value in requests.items() if key not in over), time.monotonic_ns())
        return {(device >> 32, device & 0xFFFF_FFFF): disk for device, disk in found.items()}

    def groups(self) -> dict[int, GroupTrace]:
        """Return the groups whose requests completed, by the inode of their directory.

        :raises BpfCallFailed: if the map cannot be read.
        """
        return {inode: group_trace(new, old) for inode, new, old in self._groups.changed()}

    def lost(self) -> dict[LossReason, int]:
        """Return how many requests are not, or not wholly, in the counts, by reason, since loading.

        :raises BpfCallFailed: if the map cannot be read.
        """
        found = {reason: self._lost.count(place) for place, reason in enumerate(_REASONS)}
        found["unseen"] += self._removed
        return found

    def close(self) -> None:
        """Detach and unload."""
        self.meter.close()
        self.object.close()


def attachable(types: btf.Btf) -> tuple[frozenset[str], int]:
    """Return the programs that this kernel has a place for, and at which argument they find the request.

    ``(queue, request)`` was passed before 5.11; some 5.10 kernels have the change too, so the type tells, not the
    version.

    :raises BpfUnavailable: ``no_bpf`` where a needed tracepoint is missing.
    """
    arguments = {name: types.tracepoint_arguments(point) for name, point in _TRACEPOINTS.items()}
    found = frozenset(name for name, number in arguments.items() if number is not None)
    absent = _NEEDED - found
    if absent:
        raise BpfUnavailable("no_bpf", f"this kernel has no tracepoint {_TRACEPOINTS[min(absent)]}")
    return found, 1 if arguments["rq_issue"] == 2 else 0


def ignored_majors(root: paths.Root) -> tuple[int, int, int, int]:
    """Return the major numbers of loop, md and dm; a number that no disk has stands for one that is not loaded."""
    listed: dict[str, int] = {}
    try:
        _, _, blocks = (root.proc / "devices").read_text().partition("Block devices:")
    except OSError:
        blocks = ""
    for line in blocks.splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdecimal():
            listed[name] = int(number)
    loop, md, mdp, dm = (listed.get(name, fixed or _NO_MAJOR) for name, fixed in _IGNORED_MAJORS.items())
    return loop, md, mdp, dm


def disk_trace(new: bytes, old: bytes | None) -> DiskTrace:
    """Return what a disk's entry gained."""
    reads, writes, read_bytes, write_bytes = _traffic(new, old)
    read, write, queue, device = (_gained(new, old, i) for i in range(4))
    latency = Histogram()
    latency.merge(read)
    latency.merge(write)
    return DiskTrace(
        latency=latency,
        read_latency=read,
        write_latency=write,
        queue=queue,
        device=device,
        reads=reads,
        writes=writes,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
    )


def group_trace(new: bytes, old: bytes | None) -> GroupTrace:
    """Return what a group's entry gained."""
    reads, writes, read_bytes, write_bytes = _traffic(new, old)
    return GroupTrace(
        block=_gained(new, old, 0), reads=reads, writes=writes, read_bytes=read_bytes, write_bytes=write_bytes
    )


def add_pending(disks: dict[int, DiskTrace], requests: Iterable[bytes], now_ns: int) -> None:
    """Count the requests that the disks have now; those that wait in a queue are not with the disk."""
    for value in requests:
        made_ns, issued_ns, device, _group, _write = _PENDING.unpack(value)
        if not issued_ns:
            continue
        disk = disks.setdefault(device, DiskTrace())
        # Issued while we read: its age is nothing yet.
        age_usec = max(now_ns - made_ns, 0) / 1000
        disk.in_flight += 1
        disk.oldest_in_flight_usec = max(disk.oldest_in_flight_usec or 0.0, age_usec)


def _issued(value: bytes) -> tuple[int, int]:
    """Return the disk of a request, and when it was issued: 0 while it waits in a queue."""
    _made_ns, issued_ns, device, _group, _write = _PENDING.unpack(value)
    return device, issued_ns


def _gained(new: bytes, old: bytes | None, index: int) -> Histogram:
    place = slice(index * counts.HISTOGRAM_BYTES, (index + 1) * counts.HISTOGRAM_BYTES)
    return Histogram(counts.added(new[place], old[place] if old else None))


def _traffic(new: bytes, old: bytes | None) -> tuple[int, ...]:
    """Return reads, writes, bytes read and bytes written since."""
    offset = len(new) - _TOTALS.size
    now = _TOTALS.unpack_from(new, offset)
    before = _TOTALS.unpack_from(old, offset) if old else (0, 0, 0, 0)
    return tuple(n - b for n, b in zip(now, before, strict=True))
