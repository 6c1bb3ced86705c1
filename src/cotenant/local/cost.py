"""What this process itself uses: CPU time, memory, time per sample."""

import collections
import pathlib
import time

from cotenant.model.loss import Loss
from cotenant.web.feed import Cost

WINDOW = 60
"""Ticks over which CPU and the percentile are taken."""


class CostMeter:
    """Measures between ticks. ``status`` is this process's own ``status`` file under its proc directory."""

    def __init__(self, status: pathlib.Path) -> None:
        self._status = status
        self._durations: collections.deque[float] = collections.deque(maxlen=WINDOW)
        self._marks: collections.deque[tuple[float, float]] = collections.deque(maxlen=WINDOW)
        self.late_ticks = 0
        self.failed_ticks = 0

    def mark(self, sample_s: float, bpf_cpu_ratio: float | None, bpf_losses: tuple[Loss, ...] = ()) -> Cost:
        """Take the time that one sample took, and return the cost over the last minute."""
        self._durations.append(sample_s)
        self._marks.append((time.monotonic(), time.process_time()))
        (wall_0, cpu_0), (wall_1, cpu_1) = self._marks[0], self._marks[-1]
        ordered = sorted(self._durations)
        return Cost(
            cpu_ratio=(cpu_1 - cpu_0) / (wall_1 - wall_0) if wall_1 > wall_0 else None,
            rss_bytes=self._rss_bytes(),
            sample_usec=sample_s * 1e6,
            sample_p99_usec=ordered[-(-len(ordered) * 99 // 100) - 1] * 1e6,
            bpf_cpu_ratio=bpf_cpu_ratio,
            bpf_losses=bpf_losses,
            late_ticks=self.late_ticks,
            failed_ticks=self.failed_ticks,
        )

    def _rss_bytes(self) -> int | None:
        try:
            lines = self._status.read_text().splitlines()
        except OSError:
            return None
        found = next((line.split() for line in lines if line.startswith("VmRSS:")), None)
        return int(found[1]) * 1024 if found else None
