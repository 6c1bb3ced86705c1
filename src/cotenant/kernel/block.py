"""Block I/O by disk: latencies from a tracer where there is one, else counts from ``/proc/diskstats``.

diskstats has no percentiles: without a tracer they stay unknown. That a disk hangs shows in both.
"""

import dataclasses
from typing import Any

from cotenant.kernel import disk, errors, paths, reading
from cotenant.kernel.file import File, number
from cotenant.kernel.reading import Reading
from cotenant.kernel.tracing import DiskTrace, Feed
from cotenant.model.rate import Count, Counters
from cotenant.model.sample import Block, Device, MissingReason
from cotenant.units.histogram import Histogram

SECTOR_BYTES = 512
"""The unit of diskstats, whatever the disk's own sector is."""
PERCENTILES = {"p50_usec": 0.5, "p95_usec": 0.95, "p99_usec": 0.99}
PARTS = ("queue_p99_usec", "device_p99_usec")
_RATES = ("read_iops", "write_iops", "read_bytes_per_sec", "write_bytes_per_sec")


@dataclasses.dataclass(slots=True)
class DiskStats:
    """One line of diskstats: counters since boot, and requests in flight now."""

    device: tuple[int, int]
    reads: int
    read_sectors: int
    writes: int
    write_sectors: int
    in_flight: int
    others: int = 0
    """Discards and flushes, which newer kernels count apart."""


def parse(data: bytes, path: str) -> dict[str, DiskStats | MissingReason]:
    """Return the lines by device name; a name whose counters are no numbers is ``malformed``.

    :raises MalformedFile: if there are lines, and none has a name.
    """
    devices: dict[str, DiskStats | MissingReason] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) < 4:
            continue
        name = words[2].decode("utf-8", "replace")
        if len(words) < 14:
            # Partitions had four counters before 2.6.25; a longer stump is a broken line.
            if len(words) != 7:
                devices[name] = "malformed"
            continue
        try:
            counts = [number(words[i], path) for i in (0, 1, 3, 5, 7, 9, 11)]
            others = sum(number(words[i], path) for i in (14, 18) if i < len(words))
        except errors.MalformedFile as error:
            devices[name] = error.reason
            continue
        major, minor, reads, read_sectors, writes, write_sectors, in_flight = counts
        devices[name] = DiskStats((major, minor), reads, read_sectors, writes, write_sectors, in_flight, others)
    if not devices and data.strip():
        raise errors.MalformedFile(path, "no line of the form: MAJOR MINOR NAME and eleven counts or more")
    return devices


class BlockReader:
    """All disks of the node."""

    def __init__(self, root: paths.Root, feed: Feed) -> None:
        self._file = File(root.proc / "diskstats")
        self._disks = disk.Disks(root)
        self._counters = Counters()
        self._feed = feed
        self._waiting_s: dict[str, float] = {}
        """By disk: for how long it has had requests in flight and completed none, as far as diskstats shows."""
        self._least: dict[str, int] = {}
        """By disk: the smallest number in flight ever seen. Some kernels lose count, and never come back to 0."""
        self.accounted: frozenset[bytes] = frozenset()
        """``MAJOR:MINOR`` of the disks to which the kernel books what groups read and write."""

    def read(self, seconds: float | MissingReason) -> Reading:
        """Read diskstats, and take the tracer's part."""
        self._counters.step(seconds)
        trace = self._feed.trace
        disks = trace if isinstance(trace, str) else trace.disks
        try:
            lines = parse(self._file.read(), self._file.path)
            names = self._disks.lowest_level(lines)
            if not names and self._disks.lacks(lines):
                raise errors.MalformedFile(self._file.path, "no line is of a disk that sysfs has")
        except errors.KernelError as error:
            return Reading({"block": Block()}, {"block": reading.reason_of(error, self._file)})
        devices = [line.device for name in self._disks.accounted if not isinstance(line := lines[name], str)]
        self.accounted = frozenset(b"%d:%d" % device for device in devices)
        if isinstance(seconds, str):
            return self._count(lines, names, seconds, reason=seconds)
        if isinstance(disks, str):
            return self._count(lines, names, seconds, reason=disks)
        return self._measure(lines, names, seconds, disks)

    def _count(
        self,
        lines: dict[str, DiskStats | MissingReason],
        names: tuple[str, ...],
        seconds: float | MissingReason,
        reason: MissingReason,
    ) -> Reading:
        devices: dict[str, Device] = {}
        missing: dict[str, MissingReason] = {"block": reason}
        total: Count = 0 if names or not isinstance(seconds, str) else seconds
        before, self._waiting_s = self._waiting_s, {}
        self._least = {key: count for key, count in self._least.items() if key.partition(" ")[0] in names}
        for name in names:
            found = self._identify(name)
            line = lines[name]
            self._put_counts(name, line, found)
            self._put_age(name, line, found, before.get(name), seconds)
            completions = found.values.get("completions")
            if completions is not None and not isinstance(total, str):
                total += completions
            devices[name] = Device(**found.values)
            # Percentiles are what the reason of the whole group is about.
            missing.update((f"block.devices.{name}.{field}", why) for field, why in found.missing.items())
        if names and not any(device.completions is not None for device in devices.values()):
            total = missing.get(f"block.devices.{names[0]}.completions", reason)
        found = reading.Findings()
        found.put("completions", total)
        missing.update((f"block.{field}", why) for field, why in found.missing.items())
        return Reading({"block": Block(source="diskstats", devices=devices, **found.values)}, missing)

    def _identify(self, name: str) -> reading.Findings:
        found = reading.Findings()
        kind = self._disks.kind(name)
        if kind in ("nvme", "ssd", "cloud", "spinning"):
            found.values["kind"] = kind
        else:
            found.missing["kind"] = kind  # type: ignore[assignment]
        return found

    def _put_counts(self, name: str, line: DiskStats | MissingReason, found: reading.Findings) -> None:
        if isinstance(line, str):
            found.put_all(("completions", *_RATES, "in_flight"), line)
            return
        count, rate = self._counters.count, self._counters.rate
        key = f"{name} {line.device}"
        reads, writes = count(f"{key} reads", line.reads), count(f"{key} writes", line.writes)
        found.put(
            "completions", reads if isinstance(reads, str) else writes if isinstance(writes, str) else reads + writes
        )
        found.put("read_iops", rate(f"{key} reads", line.reads))
        found.put("write_iops", rate(f"{key} writes", line.writes))
        found.put("read_bytes_per_sec", rate(f"{key} rbytes", line.read_sectors * SECTOR_BYTES))
        found.put("write_bytes_per_sec", rate(f"{key} wbytes", line.write_sectors * SECTOR_BYTES))
        # The kernel's own count has been seen below zero (printed as 2^32 - n) after a lost completion.
        found.put("in_flight", line.in_flight if line.in_flight < 1 << 31 else "malformed")

    def _put_age(
        self,
        name: str,
        line: DiskStats | MissingReason,
        found: reading.Findings,
        before_s: float | None,
        seconds: float | MissingReason,
    ) -> None:
        """Put how old the oldest request is at least: as old as the time in which some waited and none completed."""
        if isinstance(line, str):
            return
        key = f"{name} {line.device}"
        least = self._least[key] = min(line.in_flight, self._least.get(key, line.in_flight))
        if line.in_flight == least or "in_flight" not in found.values:
            return
        others = self._counters.count(f"{key} others", line.others)
        self._waiting_s[name] = 0.0
        hangs = others == 0 and found.values.get("completions") == 0
        if hangs and before_s is not None and not isinstance(seconds, str):
            self._waiting_s[name] = before_s + seconds
            found.put("oldest_in_flight_usec", self._waiting_s[name] * 1e6)

    def _measure(
        self,
        lines: dict[str, DiskStats | MissingReason],
        names: tuple[str, ...],
        seconds: float,
        disks: dict[tuple[int, int], DiskTrace],
    ) -> Reading:
        merged, hung_usec = Histogram(), 0.0
        devices: dict[str, Device] = {}
        missing: dict[str, MissingReason] = {}
        for name in names:
            found = self._identify(name)
            line = lines[name]
            if isinstance(line, str):
                found.put_all(("completions", *_RATES, "in_flight", *PARTS, *PERCENTILES), line)
                found.missing["oldest_in_flight_usec"] = line
            else:
                seen = disks.get(line.device) or DiskTrace()
                merged.merge(seen.latency)
                hung_usec = max(hung_usec, _hung_usec(seen))
                _put_trace(seen, seconds, found)
            devices[name] = Device(**found.values)
            missing.update((f"block.devices.{name}.{field}", why) for field, why in found.missing.items())
        whole = reading.Findings()
        whole.put("completions", int(merged.total))
        _put_percentiles(merged, hung_usec, whole)
        missing.update((f"block.{field}", why) for field, why in whole.missing.items())
        values: dict[str, Any] = {"source": "bpf", "histogram": merged.to_json(), "devices": devices, **whole.values}
        return Reading({"block": Block(**values)}, missing)

    def close(self) -> None:
        self._file.close()


def _hung_usec(seen: DiskTrace) -> float:
    """Return the age of the oldest request of a disk that completed none in the period, else 0."""
    if seen.latency.total or seen.oldest_in_flight_usec is None:
        return 0.0
    return seen.oldest_in_flight_usec


def _put_trace(seen: DiskTrace, seconds: float, found: reading.Findings) -> None:
    found.put("completions", int(seen.latency.total))
    _put_percentiles(seen.latency, _hung_usec(seen), found)
    for field, part in zip(PARTS, (seen.queue.quantile(0.99), seen.device.quantile(0.99)), strict=True):
        found.put(field, "too_few" if part is None else part)
    found.put("read_iops", seen.reads / seconds)
    found.put("write_iops", seen.writes / seconds)
    found.put("read_bytes_per_sec", seen.read_bytes / seconds)
    found.put("write_bytes_per_sec", seen.write_bytes / seconds)
    found.put("in_flight", seen.in_flight)
    found.put("oldest_in_flight_usec", "too_few" if seen.oldest_in_flight_usec is None else seen.oldest_in_flight_usec)


def _put_percentiles(latency: Histogram, hung_usec: float, found: reading.Findings) -> None:
    """Put percentiles; where a disk answers nothing at all, latency is at least the age of its oldest request."""
    for field, q in PERCENTILES.items():
        value = latency.quantile(q)
        known = max(value or 0.0, hung_usec)
        found.put(field, known if value is not None or hung_usec else "too_few")
