"""The disks of one node over the window: their latency beside what their kind, and they themselves, usually have."""

import msgspec

from cotenant.detect import window
from cotenant.detect.detectors import io_congestion
from cotenant.model import sample
from cotenant.units import histogram

OWN_READY = 600
"""Samples (ten minutes of them) before a disk's own long-term p99 is believed."""
OWN_HALF_LIFE = 3600
_DECAY_EVERY = 60
_OWN_LEAST_COMPLETIONS = 10
_P99 = window.QUANTILES.index(0.99)


class Latency(msgspec.Struct, frozen=True, gc=False):
    """The latency of one disk, or of a class on the disks it may use, and the three points that it is held to (µs)."""

    value: float | None
    normal: float
    threshold: float
    saturation: float
    idle: bool = False

    @property
    def share(self) -> float:
        """How far the value is from normal (0) to the threshold (1), and beyond; 0 without one."""
        return 0.0 if self.value is None else max(0.0, (self.value - self.normal) / (self.threshold - self.normal))


class Disk:
    """One disk."""

    __slots__ = ("_own", "_own_count", "kind", "latency", "traffic")

    def __init__(self, seconds: float) -> None:
        self.kind: sample.DeviceKind | None = None
        self.latency = window.LatencyWindow(seconds)
        self.traffic = window.Window(seconds)
        self._own = histogram.Histogram()
        self._own_count = 0

    def add(
        self,
        at: float,
        period_s: float | None,
        device: sample.Device,
        calm: bool,
        counts: histogram.Histogram | None = None,
    ) -> None:
        """Add what one sample says of the disk; what it does in an incident is not what it usually does."""
        self.kind = device.kind or self.kind
        self.latency.add(row_of(at, device, counts))
        iops = _sum(device.read_iops, device.write_iops)
        written = _sum(device.read_bytes_per_sec, device.write_bytes_per_sec)
        self.traffic.add(at, period_s, (device.in_flight, iops, written))
        enough = device.completions is None or device.completions >= _OWN_LEAST_COMPLETIONS
        if calm and enough and device.p99_usec is not None:
            self._own.add(device.p99_usec)
            self._own_count += 1
            if self._own_count % _DECAY_EVERY == 0:
                self._own.decay(0.5 ** (_DECAY_EVERY / OWN_HALF_LIFE))

    def own_p99_usec(self) -> float | None:
        """Return the disk's long-term p99 in calm times, or None until ten minutes of it were seen."""
        return self._own.quantile(0.5) if self._own_count >= OWN_READY else None

    def threshold_usec(self) -> float:
        """Return the p99 from which on this disk is slow."""
        threshold = float(io_congestion.DEVICE_THRESHOLDS_USEC.get(self.kind or "cloud", io_congestion.CLOUD_USEC))
        own = self.own_p99_usec()
        return threshold if own is None else max(threshold, io_congestion.OWN_P99_FACTOR * own)

    def p99(self, at: float, gap_s: float) -> Latency | None:
        """Return the disk's p99 over the window, or None when it is unknown."""
        percentile = self.latency.percentile(_P99, at, gap_s)
        return None if percentile.missing else held_to(percentile.value, self.threshold_usec(), percentile.idle)

    def queueing(self) -> Latency | None:
        """Return the mean time in flight by Little's law (in flight ÷ IOPS), or None when either is unknown."""
        in_flight, iops, _ = self.traffic.means()
        if in_flight is None or iops is None:
            return None
        if iops == 0:
            return held_to(None if in_flight == 0 else self.threshold_usec(), self.threshold_usec())
        return held_to(in_flight / iops * 1e6, self.threshold_usec())


def held_to(value: float | None, threshold: float, idle: bool = False) -> Latency:
    """Return a latency with the points that follow from its threshold."""
    normal, saturation = threshold * io_congestion.NORMAL_FACTOR, threshold * io_congestion.SATURATION_FACTOR
    return Latency(value, normal, threshold, saturation, idle)


def row_of(at: float, source: sample.Device, counts: histogram.Histogram | None = None) -> window.Latencies:
    """Return what one sample says of one disk's latency."""
    percentiles = (source.p50_usec, source.p95_usec, source.p99_usec)
    return window.latencies(at, source.completions, percentiles, counts, window.age_usec(source))


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


class Disks:
    """All disks of one node."""

    __slots__ = ("_disks", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._disks: dict[str, Disk] = {}

    def __getitem__(self, name: str) -> Disk:
        return self._disks[name]

    def __contains__(self, name: str) -> bool:
        return name in self._disks

    def clear(self) -> None:
        """Forget the windows; what the disks usually do stays."""
        for disk in self._disks.values():
            disk.latency.clear()
            disk.traffic.clear()

    def resize(self, seconds: float) -> None:
        """Take another length of window."""
        self.seconds = seconds
        for disk in self._disks.values():
            disk.latency.seconds = disk.traffic.seconds = seconds

    def add(self, at: float, taken: sample.Sample, calm: bool, counts: histogram.Histogram | None) -> None:
        """Add one sample; a disk that no sample of the window speaks of is forgotten.

        ``counts`` is the histogram of all disks, which is the only disk's own.
        """
        if len(taken.block.devices) != 1:
            counts = None
        for name, device in taken.block.devices.items():
            disk = self._disks.get(name)
            if disk is None:
                disk = self._disks[name] = Disk(self.seconds)
            disk.add(at, taken.period_s, device, calm, counts)
        for name in self._disks.keys() - taken.block.devices.keys():
            last = self._disks[name].latency.last_at
            if last is None or at - last >= self.seconds:
                del self._disks[name]

    def worst(self, at: float, gap_s: float) -> Latency | None:
        """Return the p99 that is worst beside its own threshold, or None when no disk's is known."""
        known = [p99 for disk in self._disks.values() if (p99 := disk.p99(at, gap_s)) is not None]
        return max(known, key=lambda p99: (p99.share, p99.value or 0.0), default=None)

    def queueing(self) -> Latency | None:
        """Return the worst of the disks' mean times in flight, or None when none is known."""
        known = [time for disk in self._disks.values() if (time := disk.queueing()) is not None]
        return max(known, key=lambda time: time.share, default=None)

    def slowest_threshold_usec(self) -> float:
        """Return the threshold of the slowest disk there is: a class's latency may be any disk's."""
        return max((disk.threshold_usec() for disk in self._disks.values()), default=float(io_congestion.CLOUD_USEC))

    def bytes_per_sec(self) -> float | None:
        """Return what all disks read and write, or None when no disk's traffic is known."""
        known = [traffic for disk in self._disks.values() if (traffic := disk.traffic.means()[2]) is not None]
        return sum(known) if known else None
