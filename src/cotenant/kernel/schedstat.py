"""Waits for a CPU where there is no eBPF: ``/proc/schedstat`` knows their sum and number, hence only their mean."""

from cotenant.kernel import errors, paths, reading
from cotenant.kernel.file import File, number
from cotenant.model.rate import Count, Counters
from cotenant.model.sample import MissingReason

WAIT_FIELD, TIMESLICES_FIELD = 8, 9
"""Of a ``cpuN`` line, the name being 0: nanoseconds waited, and times that a task got the CPU (versions 15 to 17)."""


def parse(data: bytes, path: str) -> tuple[int, int]:
    """Return nanoseconds waited and time slices of all CPUs; lines of domains are passed over.

    :raises MalformedFile: if there is no CPU, or a line of one is too short.
    """
    waited = slices = 0
    seen = False
    for line in data.split(b"\n"):
        if not line.startswith(b"cpu"):
            continue
        words = line.split()
        if len(words) <= TIMESLICES_FIELD:
            raise errors.MalformedFile(path, "a cpuN line has fewer than nine numbers")
        waited += number(words[WAIT_FIELD], path)
        slices += number(words[TIMESLICES_FIELD], path)
        seen = True
    if not seen:
        raise errors.MalformedFile(path, "no cpuN line")
    return waited, slices


class Schedstat:
    """The mean wait over each period."""

    def __init__(self, root: paths.Root) -> None:
        self._file = File(root.proc / "schedstat")
        self._counters = Counters()

    def mean_usec(self, seconds: float | MissingReason) -> float | MissingReason:
        """Return the mean wait in microseconds, or why it is unknown (``unsupported``: no CONFIG_SCHEDSTATS)."""
        self._counters.step(seconds)
        try:
            totals = parse(self._file.read(), self._file.path)
        except errors.KernelError as error:
            return reading.reason_of(error, self._file)
        waited: Count = self._counters.count("waited", totals[0])
        slices: Count = self._counters.count("slices", totals[1])
        if isinstance(waited, str):
            return waited
        if isinstance(slices, str):
            return slices
        return waited / slices / 1000 if slices else 0.0

    def close(self) -> None:
        self._file.close()
