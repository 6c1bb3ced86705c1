"""What a tracer (BPF) tells the readers: latencies of one period, by disk and by control group.

A tracer is optional. Without one, readers fall back to counters, and say with the tracer's own reason what they lack.
"""

import dataclasses
from typing import Protocol

from cotenant.model.loss import Loss
from cotenant.model.sample import MissingReason
from cotenant.units.histogram import Histogram


@dataclasses.dataclass(slots=True)
class DiskTrace:
    """One disk within one period. Histograms are microseconds; counts are completed requests and bytes.

    Only lowest-level disks: what dm and md pass down is seen once, at the disk.
    """

    latency: Histogram = dataclasses.field(default_factory=Histogram)
    """From when a request was made to complete, reads and writes together."""
    read_latency: Histogram = dataclasses.field(default_factory=Histogram)
    write_latency: Histogram = dataclasses.field(default_factory=Histogram)
    queue: Histogram = dataclasses.field(default_factory=Histogram)
    """From when a request was made to its last issue."""
    device: Histogram = dataclasses.field(default_factory=Histogram)
    """The last issue to complete."""
    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    in_flight: int = 0
    """Requests issued and not complete at the end of the period."""
    oldest_in_flight_usec: float | None = None
    """How long the oldest of those takes already, its time in the queue included."""


@dataclasses.dataclass(slots=True)
class GroupTrace:
    """One control group within one period: its own requests and its own tasks, not those of groups below it."""

    block: Histogram = dataclasses.field(default_factory=Histogram)
    run_queue: Histogram = dataclasses.field(default_factory=Histogram)
    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0


@dataclasses.dataclass(slots=True)
class Trace:
    """What happened since the last read; a part is why it is unknown instead, when its programs did not load."""

    disks: dict[tuple[int, int], DiskTrace] | MissingReason
    """By major and minor number."""
    run_queue: Histogram | MissingReason
    """Microseconds that tasks of the whole node waited, runnable, for a CPU."""
    block_groups: dict[int, GroupTrace] | MissingReason
    """By inode of the group's directory in the hierarchy that has blkio/io."""
    cpu_groups: dict[int, GroupTrace] | MissingReason
    """By inode of the group's directory in the hierarchy that has cpu."""


class Tracer(Protocol):
    """The programs in the kernel."""

    def read(self) -> Trace | MissingReason:
        """Return what happened since the last read, or why nothing is known."""
        ...

    @property
    def core_ratio(self) -> float | None:
        """The programs' own run time as a share of one CPU; None before it was measured, or where it cannot be."""
        ...

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Events that the programs could not count, since they were loaded."""
        ...

    def close(self) -> None:
        """Take the programs out of the kernel."""
        ...


class Feed:
    """One read of a tracer per period, for all the readers that need a part of it."""

    def __init__(self, tracer: Tracer | MissingReason) -> None:
        self._tracer = tracer
        self.trace: Trace | MissingReason = tracer if isinstance(tracer, str) else "first_sample"

    def refresh(self) -> None:
        """Read the tracer; :attr:`trace` is then what happened in the last period, or why it is unknown."""
        if not isinstance(self._tracer, str):
            self.trace = self._tracer.read()

    @property
    def core_ratio(self) -> float | None:
        """The tracer's own run time as a share of one CPU, or None when it is not known or there is no tracer."""
        return None if isinstance(self._tracer, str) else self._tracer.core_ratio

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What the tracer could not count, by reason; empty where there is none."""
        return () if isinstance(self._tracer, str) else self._tracer.losses

    def close(self) -> None:
        """Close the tracer."""
        if not isinstance(self._tracer, str):
            self._tracer.close()
