"""What our programs cost: their own run time, sampled, as a share of all CPUs."""

import dataclasses
import os

from cotenant.kernel.bpf.errors import BpfCallFailed
from cotenant.kernel.bpf.program import Object, Statistics
from cotenant.model.sample import MissingReason


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Run time of one object's programs while it was measured last."""

    cpu_ratio: float
    """Share of all CPUs; 0.001 is the most that is meant to be used."""
    runs_per_sec: float
    mean_ns: float | None
    """Length of one run, the accounting's own few tens of nanoseconds included; None if nothing ran."""


class Meter:
    """Measures one period in so many: the accounting itself slows every BPF program on the machine."""

    def __init__(self, object_: Object, every: int = 30) -> None:
        self._object = object_
        self._every = every
        self._turn = 0
        self._statistics: Statistics | None = None
        self._start: tuple[int, int] = (0, 0)
        self.cost: Cost | None = None
        """The last measurement, None before the first one is done."""
        self.missing: MissingReason = "first_sample"
        """Why there is no measurement."""

    def tick(self, seconds: float | None) -> None:
        """Note that a period ended; ``seconds`` is its length, None if it cannot be told."""
        if self._statistics is not None:
            time_ns, count = self._object.run_time_ns()
            self._stop()
            if seconds:
                self._take(time_ns - self._start[0], count - self._start[1], seconds)
        elif self._turn % self._every == 0:
            try:
                self._statistics = Statistics()
                self._start = self._object.run_time_ns()
            except BpfCallFailed as error:
                self.missing = error.reason
        self._turn += 1

    def _take(self, time_ns: int, count: int, seconds: float) -> None:
        self.cost = Cost(
            cpu_ratio=time_ns / 1e9 / seconds / (os.cpu_count() or 1),
            runs_per_sec=count / seconds,
            mean_ns=time_ns / count if count else None,
        )

    def _stop(self) -> None:
        if self._statistics is not None:
            self._statistics.close()
            self._statistics = None

    def close(self) -> None:
        """Stop accounting."""
        self._stop()
