"""Serve the page of all nodes with so many of them, until the standard input ends: ``fleet_server.py COUNT``."""

import asyncio
import os
import sys
import time

import prometheus_client

from cotenant.analyzer import page
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.rulebook import Rulebook
from cotenant.model import sample
from cotenant.units.clock import Clock, ManualClock
from cotenant.web import serving
from cotenant.web.guard import AllowedHosts

ONE_HURT_IN = 50
SECONDS = 5


def fill(fleet: Fleet, clock: ManualClock, count: int) -> None:
    """Have each node heard for some seconds; one in fifty stalls for half of the time."""
    for second in range(SECONDS):
        clock.advance(1)
        for number in range(count):
            stalled = 0.5 if number % ONE_HURT_IN == 0 else 0.001 * (number % 97)
            psi = sample.Psi(memory_some_ratio=stalled, memory_full_ratio=stalled, io_some_ratio=0.0)
            taken = sample.Sample(
                node=f"node-{number:04}", boot_id="boot", uptime_s=float(second), period_s=1.0,
                time="2026-11-30T00:00:00.000Z", psi=psi,
            )  # fmt: skip
            fleet.hear(taken.node, [taken])


class _Running(ManualClock):
    """Goes on from where it was set, with real time."""

    def __init__(self) -> None:
        super().__init__()
        self._started = time.monotonic()

    def monotonic(self) -> float:
        return super().monotonic() + time.monotonic() - self._started

    def wall(self) -> float:
        return super().wall() + time.monotonic() - self._started


async def serve(count: int) -> None:
    clock = _Running()
    fleet = Fleet(Rulebook(), clock)
    fill(fleet, clock, count)
    kept: Clock = clock
    site = page.FleetSite(fleet, kept, AllowedHosts("127.0.0.1"), prometheus_client.CollectorRegistry())
    for minute in range(59):  # an hour of squares
        site.heat.keep(set(fleet.nodes))
        for number, (name, node) in enumerate(fleet.nodes.items()):
            material = node.material()
            site.heat.note(name, material.bucket, bool(material.hard) and (number + minute) % 3 == 0, clock.monotonic())
        clock.advance(60)
    for name, node in fleet.nodes.items():  # heard just now: nobody is silent
        node.heard_at = clock.monotonic()
        site.heat.note(name, node.material().bucket, bool(node.material().hard), clock.monotonic())
    listening = serving.bind("127.0.0.1:0")
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
    running = asyncio.ensure_future(page.serve(site, listening))
    await asyncio.to_thread(sys.stdin.read)
    running.cancel()


if __name__ == "__main__":
    if os.getppid() == 1:
        sys.exit("who started this has gone")
    asyncio.run(serve(int(sys.argv[1])))
