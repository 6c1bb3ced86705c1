"""The last-level cache of the node, from whatever the machine has."""

from cotenant.kernel.llc import perf, probe, resctrl
from cotenant.kernel.reading import Findings, Reading, of_group
from cotenant.model.sample import Llc, LlcSource, MissingReason


class LlcReader:
    """Miss ratio and misses per thousand instructions by perf, occupancy and bandwidth by resctrl, and the probe.

    ``source`` names the best that works, in that order.
    """

    def __init__(
        self,
        counters: perf.Perf | MissingReason,
        monitor: resctrl.Resctrl,
        probing: probe.Probe | MissingReason = "not_enabled",
    ) -> None:
        self._perf = counters
        self._resctrl = monitor
        self._probe = probing

    def read(self, seconds: float | MissingReason) -> Reading:
        """Read all three."""
        found = Findings()
        if isinstance(self._perf, str):
            found.put_all(perf.FIELDS, self._perf)
        else:
            self._perf.read_into(found, seconds)
        self._resctrl.read_into(found, seconds)
        if isinstance(self._probe, str):
            found.put("probe_ratio", self._probe)
        elif isinstance(seconds, str):
            found.put("probe_ratio", seconds)
        else:
            self._probe.read_into(found)
        source = _source(found)
        if source is not None:
            found.values["source"] = source
            return of_group("llc", Llc, found)
        # Nothing works: the group's own reason is that of the counters, and only what differs is named besides.
        reason = found.missing["miss_ratio"]
        named = {f"llc.{field}": why for field, why in found.missing.items() if why != reason}
        return Reading({"llc": Llc(**found.values)}, {"llc": reason, **named})

    def close(self) -> None:
        if not isinstance(self._perf, str):
            self._perf.close()
        self._resctrl.close()


def _source(found: Findings) -> LlcSource | None:
    if "miss_ratio" in found.values or "mpki" in found.values:
        return "perf"
    if "occupancy_bytes" in found.values or "memory_bandwidth_bytes_per_sec" in found.values:
        return "resctrl"
    return "probe" if "probe_ratio" in found.values else None
