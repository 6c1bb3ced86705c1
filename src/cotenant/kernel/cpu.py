"""CPU time of the node: ``/proc/stat``.

``/proc/interrupts`` is never read: it takes 77 ms on 256 CPUs. The totals of its counters are in ``/proc/stat`` too.
"""

import dataclasses

from cotenant.kernel import errors, paths, reading
from cotenant.kernel.file import File, number
from cotenant.kernel.reading import Findings, Reading
from cotenant.kernel.schedstat import Schedstat
from cotenant.kernel.tracing import Feed
from cotenant.model.rate import Count, Counters
from cotenant.model.sample import Cpu, MissingReason

TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The columns in order. ``guest`` and ``guest_nice`` follow, and are in user and nice already."""
UNRELIABLE = frozenset({"idle", "iowait", "steal"})
"""Columns that the kernel itself lets fall (proc(5)): iowait and idle of a CPU without ticks, steal after migration."""
RATIOS = {
    "used_ratio": ("user", "nice", "system", "irq", "softirq"),
    "user_ratio": ("user", "nice"),
    "system_ratio": ("system",),
    "iowait_ratio": ("iowait",),
    "steal_ratio": ("steal",),
    "irq_ratio": ("irq",),
    "softirq_ratio": ("softirq",),
}
LATENCIES = {"run_queue_latency_p95_usec": 0.95, "run_queue_latency_p99_usec": 0.99}
MEAN = "run_queue_latency_mean_usec"


@dataclasses.dataclass(slots=True)
class Stat:
    """Ticks of all CPUs by column, CPUs on line, and interrupts and soft interrupts handled; or why unknown."""

    ticks: dict[str, int]
    online: int
    interrupts: Count
    softirqs: Count


def parse(data: bytes, path: str) -> Stat:
    """Return the totals of ``/proc/stat``; a column that an old kernel lacks is not in ``ticks``.

    :raises MalformedFile: if the first line is not ``cpu`` and at least four counts, or no CPU is on line.
    """
    words = data[: data.find(b"\n")].split() if b"\n" in data else data.split()
    if len(words) < 5 or words[0] != b"cpu":
        raise errors.MalformedFile(path, "the first line is not: cpu USER NICE SYSTEM IDLE …")
    ticks = {name: number(word, path) for name, word in zip(TIMES, words[1:], strict=False)}
    online = data.count(b"\ncpu")
    if not online:
        raise errors.MalformedFile(path, "no cpuN line")
    return Stat(ticks, online, _first_count(data, b"\nintr ", path), _first_count(data, b"\nsoftirq ", path))


def _first_count(data: bytes, key: bytes, path: str) -> Count:
    """Return the number after a key; the line itself has thousands of others, so it is not split."""
    start = data.find(key)
    if start < 0:
        return "unsupported"
    start += len(key)
    try:
        return number(data[start : start + 24].split(b"\n", 1)[0].split(b" ", 1)[0], path)
    except errors.MalformedFile as error:
        return error.reason


class CpuReader:
    """CPU time by kind, interrupt rates, and run-queue latency: percentiles from a tracer, else schedstat's mean."""

    def __init__(self, root: paths.Root, feed: Feed) -> None:
        self.online: int | None = None
        """CPUs on line at the last read."""
        self._feed = feed
        self._file = File(root.proc / "stat")
        self._counters = Counters()
        self._schedstat = Schedstat(root)

    def read(self, seconds: float | MissingReason) -> Reading:
        """Read ``/proc/stat``."""
        self._counters.step(seconds)
        found = Findings()
        try:
            stat = parse(self._file.read(), self._file.path)
        except errors.KernelError as error:
            self.online = None
            reason = reading.reason_of(error, self._file)
            found.put_all(
                (*RATIOS, "source", "online", "interrupts_per_sec", "softirqs_per_sec", *LATENCIES, MEAN), reason
            )
            return reading.of_group("cpu", Cpu, found)
        self.online = found.values["online"] = stat.online
        found.put("interrupts_per_sec", self._counters.rate("interrupts", stat.interrupts))
        found.put("softirqs_per_sec", self._counters.rate("softirqs", stat.softirqs))
        self._put_ratios(stat, found)
        self._put_latencies(seconds, found)
        return reading.of_group("cpu", Cpu, found)

    def _put_latencies(self, seconds: float | MissingReason, found: Findings) -> None:
        trace = self._feed.trace
        waits = trace if isinstance(trace, str) else trace.run_queue
        if isinstance(waits, str):
            mean = self._schedstat.mean_usec(seconds)
            found.values["source"] = "stat" if mean in ("unsupported", "malformed") else "schedstat"
            found.put(MEAN, mean)
            found.put_all(LATENCIES, waits)
            return
        found.values["source"] = "bpf"
        found.put(MEAN, "not_enabled")
        if isinstance(seconds, str):
            found.put_all(LATENCIES, seconds)
            return
        for field, q in LATENCIES.items():
            value = waits.quantile(q)
            found.put(field, "too_few" if value is None else value)

    def _put_ratios(self, stat: Stat, found: Findings) -> None:
        grown = {name: self._counters.count(name, ticks) for name, ticks in stat.ticks.items()}
        for name, count in grown.items():
            if isinstance(count, str) and not (count == "reset" and name in UNRELIABLE):
                found.put_all(RATIOS, count)  # without one of the parts the whole is unknown
                return
        total = sum(count for count in grown.values() if not isinstance(count, str))
        for field, parts in RATIOS.items():
            found.put(field, _ratio([grown.get(part, "unsupported") for part in parts], total))

    def close(self) -> None:
        self._file.close()
        self._schedstat.close()


def _ratio(parts: list[Count], total: int) -> float | MissingReason:
    grown = 0
    for part in parts:
        if isinstance(part, str):
            return part
        grown += part
    return grown / total if total else 0.0
