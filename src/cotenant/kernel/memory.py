"""Memory of the node: ``/proc/meminfo`` and ``/proc/vmstat``.

Reclaim that a memory controller does inside a group is not in ``/proc/vmstat``: it shows in pressure, refaults and
major faults.
"""

import re
from collections.abc import Mapping

from cotenant.kernel import errors, paths, reading
from cotenant.kernel.file import File, number
from cotenant.kernel.reading import Findings, Reading
from cotenant.model.rate import Count, Counters
from cotenant.model.sample import Memory, MissingReason

_MEMINFO = re.compile(rb"^(MemTotal|MemFree|MemAvailable):[ \t]*(.*?)(?: kB)?$", re.MULTILINE)
_VMSTAT = re.compile(
    rb"^(pgscan_(?:kswapd|direct|khugepaged)(?:_(?:dma|dma32|normal|high|movable|device))?"
    rb"|workingset_refault(?:_anon|_file)?|pgmajfault|pswpin|pswpout|oom_kill)[ \t]+(.*)$",
    re.MULTILINE,
)
_ZONE = re.compile(rb"_(?:dma|dma32|normal|high|movable|device)$")
VMSTAT_FIELDS = (
    "page_scan_per_sec",
    "direct_scan_per_sec",
    "refault_per_sec",
    "major_fault_per_sec",
    "swap_in_per_sec",
    "swap_out_per_sec",
    "oom_kills",
)


def parse_meminfo(data: bytes, path: str) -> dict[str, float | MissingReason]:
    """Return the shares of all memory that are available and free, 0..1; ``unsupported`` where no line says it.

    :raises MalformedFile: if a value is not a number, or the total is 0.
    """
    values = {name: number(word, path) for name, word in _MEMINFO.findall(data)}
    total = values.get(b"MemTotal")
    if not total:
        raise errors.MalformedFile(path, "MemTotal is missing or 0")
    lines = {"available_ratio": values.get(b"MemAvailable"), "free_ratio": values.get(b"MemFree")}
    return {field: "unsupported" if kb is None else min(kb / total, 1.0) for field, kb in lines.items()}


def parse_vmstat(data: bytes, path: str) -> dict[str, Count]:
    """Return the counters of :data:`VMSTAT_FIELDS`; pages, except faults and kills.

    Kernels before 4.8 count scans by zone, those before 5.9 refaults without a kind.
    """
    raw: dict[bytes, Count] = {}
    for name, word in _VMSTAT.findall(data):
        try:
            value: Count = number(word, path)
        except errors.MalformedFile as error:
            value = error.reason
        key = _ZONE.sub(b"", name)
        raw[key] = _sum(raw[key], value) if key in raw else value
    absent: MissingReason = "unsupported" if raw else "malformed"
    direct = raw.get(b"pgscan_direct", absent)
    refault = raw.get(b"workingset_refault", absent)
    if b"workingset_refault_file" in raw:
        refault = _sum(raw.get(b"workingset_refault_anon", 0), raw[b"workingset_refault_file"])
    return {
        "page_scan_per_sec": _sum(raw.get(b"pgscan_kswapd", absent), direct, raw.get(b"pgscan_khugepaged", 0)),
        "direct_scan_per_sec": direct,
        "refault_per_sec": refault,
        "major_fault_per_sec": raw.get(b"pgmajfault", absent),
        "swap_in_per_sec": raw.get(b"pswpin", absent),
        "swap_out_per_sec": raw.get(b"pswpout", absent),
        "oom_kills": raw.get(b"oom_kill", absent),
    }


def _sum(*counts: Count) -> Count:
    total = 0
    for count in counts:
        if isinstance(count, str):
            return count
        total += count
    return total


class MemoryReader:
    """Available memory, reclaim, refaults, swap and OOM kills of the whole node."""

    def __init__(self, root: paths.Root) -> None:
        self._meminfo = File(root.proc / "meminfo")
        self._vmstat = File(root.proc / "vmstat")
        self._counters = Counters()

    def read(self, seconds: float | MissingReason) -> Reading:
        """Read both files."""
        self._counters.step(seconds)
        found = Findings()
        try:
            for share, value in parse_meminfo(self._meminfo.read(), self._meminfo.path).items():
                found.put(share, value)
        except errors.KernelError as error:
            found.put_all(("available_ratio", "free_ratio"), reading.reason_of(error, self._meminfo))
        for field, count in self._read_vmstat().items():
            step = self._counters.count if field == "oom_kills" else self._counters.rate
            found.put(field, step(field, count))
        return reading.of_group("memory", Memory, found)

    def _read_vmstat(self) -> Mapping[str, Count]:
        try:
            return parse_vmstat(self._vmstat.read(), self._vmstat.path)
        except errors.KernelError as error:
            return dict.fromkeys(VMSTAT_FIELDS, reading.reason_of(error, self._vmstat))

    def close(self) -> None:
        self._meminfo.close()
        self._vmstat.close()
