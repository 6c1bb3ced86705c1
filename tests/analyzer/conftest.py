from collections.abc import Callable
from typing import Any

import pytest
from tests.kube.conftest import api, client

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.rulebook import Rulebook
from cotenant.model import sample
from cotenant.units.clock import ManualClock

__all__ = ["api", "client"]

MakeSample = Callable[..., sample.Sample]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fleet(clock: ManualClock) -> Fleet:
    return Fleet(Rulebook(), clock)


@pytest.fixture
def make_sample() -> MakeSample:
    """Return samples whose memory is calm, or of which every task waits for memory half of the time."""

    def make(uptime_s: float, thrashing: bool = False, node: str = "n1", **fields: Any) -> sample.Sample:
        stalled = 0.5 if thrashing else 0.0
        return sample.Sample(
            node=node,
            boot_id="boot",
            uptime_s=uptime_s,
            time="2026-11-30T00:00:00.000Z",
            period_s=1.0,
            psi=sample.Psi(memory_some_ratio=stalled, memory_full_ratio=stalled, io_some_ratio=0.0, cpu_some_ratio=0.0),
            memory=sample.Memory(available_ratio=0.5),
            **fields,
        )

    return make


@pytest.fixture
def live(fleet: Fleet, clock: ManualClock, make_sample: MakeSample) -> Callable[..., None]:
    """Let a node live for some seconds, one sample each."""

    def run(seconds: int, thrashing: bool = False, node: str = "n1") -> None:
        for _ in range(seconds):
            clock.advance(1)
            fleet.hear(node, [make_sample(clock.monotonic(), thrashing, node)])
            fleet.tick()

    return run
