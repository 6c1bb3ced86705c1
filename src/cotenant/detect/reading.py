"""One node at the end of one sample: each signal's value over the window, its index, and whether it is past a point."""

from collections.abc import Sequence

from cotenant.detect import compiled, disks, window
from cotenant.model import sample

REACHING_FACTOR = 0.5
CALM_FACTOR = 0.4
"""A conditional signal can trigger while its condition's factor is at least a half, and is calm below two fifths."""
_PAGE_BYTES = 4096
_BLOCK_P99 = compiled.name_and_groups("block.p99_usec")


def index_of(value: float, normal: float, saturation: float) -> float:
    """Return clamp((value - normal) / (saturation - normal), 0, 1), for rising and falling signals alike."""
    index = (value - normal) / (saturation - normal)
    return 0.0 if index <= 0 else 1.0 if index >= 1 else index


class NodeView:
    """The windows of one node at one time. What a condition asks for is worked out once."""

    __slots__ = (
        "_at",
        "_block",
        "_columns",
        "_compiled",
        "_disks",
        "_factors",
        "_gap_s",
        "_means",
        "_shares",
        "_values",
        "_worst",
    )

    def __init__(
        self,
        plan: compiled.Compiled,
        at: float,
        values: window.Window,
        block: window.LatencyWindow,
        devices: disks.Disks,
    ) -> None:
        self._compiled = plan
        self._at = at
        self._gap_s = values.gap_s
        self._values = values
        self._columns = values.columns()
        self._means = values.means_of(self._columns)
        self._block = block
        self._disks = devices
        self._factors: dict[int, float | None] = {}
        self._worst: list[disks.Latency | None] = []
        self._shares: dict[str, float | None] = {}

    def mean(self, signal: str) -> float | None:
        """Return the mean of a signal over the window, or None when it is unknown."""
        return self._means[self._compiled.columns[signal]]

    def why_no_mean(self, signal: str, taken: sample.Sample) -> sample.MissingReason:
        """Return why the mean of a signal is unknown."""
        said = said_missing(compiled.name_and_groups(signal), taken)
        return said or self._values.why_unknown(self._columns[self._compiled.columns[signal]]) or "too_few"

    def latency_share(self) -> float | None:
        """Return how far latency is from normal (0) to the threshold (1) and beyond, or None when it is unknown.

        Of the online class where it is known, else of the worst disk, else by its in-flight requests and IOPS.
        """
        if "latency" not in self._shares:
            online = self.mean("online.block_p99_usec") if "online.block_p99_usec" in self._compiled.columns else None
            if online is not None:
                latency: disks.Latency | None = disks.held_to(online, self._disks.slowest_threshold_usec())
            else:
                latency = self._worst_disk() or self._disks.queueing()
            self._shares["latency"] = latency.share if latency else None
        return self._shares["latency"]

    def refault_share(self) -> float | None:
        """Return the share of the disks' traffic that is pages evicted too early or swapped out, or None if unknown."""
        if "refault" not in self._shares:
            self._shares["refault"] = self._refault_share()
        return self._shares["refault"]

    def _refault_share(self) -> float | None:
        refaults, traffic = self.mean("memory.refault_per_sec"), self._disks.bytes_per_sec()
        if refaults is None or traffic is None:
            return None
        pages = refaults + (self.mean("memory.swap_out_per_sec") or 0.0)
        return min(pages * _PAGE_BYTES / traffic, 1.0) if traffic > 0 else 0.0

    def _worst_disk(self) -> disks.Latency | None:
        if not self._worst:
            self._worst.append(self._disks.worst(self._at, self._gap_s))
        return self._worst[0]

    def read(self, entry: compiled.Entry) -> compiled.Reading:
        """Return the reading of one signal."""
        if entry.rule.scale == "device":
            reading = self._read_by_device(entry)
        elif entry.column is not None:
            mean = self._means[entry.column]
            if mean is None:
                return entry.unknown  # half of the signals of most nodes
            reading = _plain(entry, mean)
        else:
            percentile = self._percentile(entry)
            if percentile.idle:
                return compiled.Reading(None, 0.0, entry.rule.threshold)
            if percentile.value is None:
                return entry.unknown
            reading = _plain(entry, percentile.value)
        return self._conditioned(entry, reading) if entry.condition and reading.index is not None else reading

    def _conditioned(self, entry: compiled.Entry, reading: compiled.Reading) -> compiled.Reading:
        assert entry.condition is not None
        key = id(entry.condition)
        if key not in self._factors:
            found = entry.condition.factor(self)
            self._factors[key] = None if found is None else min(max(0.0, found), 1.0)  # a share may be below 0 or NaN
        factor = self._factors[key]
        if factor is None or reading.index is None:
            return compiled.Reading(reading.value, None, reading.threshold)
        return compiled.Reading(
            reading.value,
            reading.index * factor,
            reading.threshold,
            reached=reading.reached and factor >= REACHING_FACTOR,
            calm=reading.calm or factor < CALM_FACTOR,
        )

    def _percentile(self, entry: compiled.Entry) -> window.Percentile:
        assert entry.percentile is not None
        if entry.device is None:
            return self._block.percentile(entry.percentile, self._at, self._gap_s)
        if entry.device not in self._disks:
            return window.Percentile(None, missing="gone")
        return self._disks[entry.device].latency.percentile(entry.percentile, self._at, self._gap_s)

    def _read_by_device(self, entry: compiled.Entry) -> compiled.Reading:
        latency: disks.Latency | None
        if entry.column is not None:
            mean = self._means[entry.column]
            latency = None if mean is None else disks.held_to(mean, self._disks.slowest_threshold_usec())
        else:
            latency = self._worst_disk()
            if latency is None:
                whole = self._percentile(entry)
                if not whole.missing:
                    latency = disks.held_to(whole.value, entry.rule.threshold, whole.idle)
        if latency is None:
            return entry.unknown
        if latency.value is None:
            return compiled.Reading(None, 0.0, latency.threshold)
        leave = compiled.leave_point(
            latency.normal, latency.threshold, self._compiled.rules.hysteresis.leave_ratio, falling=False
        )
        return compiled.Reading(
            latency.value,
            index_of(latency.value, latency.normal, latency.saturation),
            latency.threshold,
            reached=latency.value >= compiled.at_or_past(latency.threshold, falling=False),
            calm=latency.value < compiled.at_or_past(leave, falling=False),
        )

    def why_unknown(self, entry: compiled.Entry, taken: sample.Sample) -> sample.MissingReason:
        """Return why a signal has no index: what its own sample says, or what the window lacks."""
        said = said_missing(entry.names, taken)
        if said:
            return said
        if entry.percentile is not None:
            return self._percentile(entry).missing or "too_few"
        assert entry.column is not None
        return self._values.why_unknown(self._columns[entry.column]) or said_missing(_BLOCK_P99, taken) or "too_few"


def _plain(entry: compiled.Entry, value: float) -> compiled.Reading:
    rule = entry.rule
    index = index_of(value, rule.normal, rule.saturation)
    if entry.falling:
        return compiled.Reading(value, index, rule.threshold, value <= entry.reach, value > entry.leave)
    return compiled.Reading(value, index, rule.threshold, value >= entry.reach, value < entry.leave)


def said_missing(names: Sequence[str], taken: sample.Sample) -> sample.MissingReason | None:
    """Return the reason that a sample gives for a signal or for a group that it is in, or None.

    ``names`` are the signal's and its groups', as :func:`compiled.name_and_groups` returns them.
    """
    missing = taken.missing
    for name in names:
        if name in missing:
            return missing[name]
    return None
