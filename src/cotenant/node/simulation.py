"""Nodes that do not exist: their samples, for tests of the stream, the analyzer and schedulers at scale."""

import asyncio
import dataclasses
import random
import time

import msgspec

from cotenant.model import sample
from cotenant.node.sending import Identity, Sender


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many nodes, what they are called, how many are noisy, and for how long."""

    count: int
    prefix: str = "node-"
    first: int = 0
    noisy_ratio: float = 0.0
    seed: int = 1
    address: str = "127.0.0.1:7443"


class SimulatedNode:
    """One node's samples: calm, or with a disk that cannot keep up and tasks that stall on it."""

    def __init__(self, name: str, noisy: bool, seed: int) -> None:
        self.name = name
        self.noisy = noisy
        self._random = random.Random(f"{seed}/{name}")
        self._boot_id = f"simulated-{name}"

    def sample(self, uptime_s: float, wall: float) -> sample.Sample:
        """Return the sample of the second that ends now."""
        around = self._random.uniform(0.8, 1.2)
        stalled = 0.7 * around if self.noisy else 0.01 * around
        latency = 120_000.0 * around if self.noisy else 800.0 * around
        return sample.Sample(
            node=self.name,
            boot_id=self._boot_id,
            uptime_s=uptime_s,
            time=time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(wall)),
            period_s=1.0,
            psi=sample.Psi(
                cpu_some_ratio=0.02 * around,
                memory_some_ratio=0.0,
                memory_full_ratio=0.0,
                io_some_ratio=stalled,
                io_full_ratio=stalled / 2,
            ),
            block=sample.Block(
                source="diskstats", completions=200, p50_usec=latency / 8, p95_usec=latency / 2, p99_usec=latency
            ),
            memory=sample.Memory(available_ratio=0.6 * around, page_scan_per_sec=0.0, major_fault_per_sec=0.0),
            cpu=sample.Cpu(
                source="stat",
                online=8,
                used_ratio=0.3 * around,
                steal_ratio=0.0,
                run_queue_latency_p99_usec=300 * around,
            ),
            missing={"llc": "no_pmu", "online": "no_class"},
        )


async def run(plan: Plan, seconds: float | None) -> dict[str, int]:
    """Stream all nodes' samples, spread over each second, for a time or until cancelled; returns what was sent."""
    noisy = round(plan.count * plan.noisy_ratio)
    nodes = [
        SimulatedNode(f"{plan.prefix}{number}", number - plan.first < noisy, plan.seed)
        for number in range(plan.first, plan.first + plan.count)
    ]
    facts = msgspec.json.encode({"mode": "observe"})
    senders = [Sender(Identity(node.name, version="simulated", facts=facts), plan.address) for node in nodes]
    tasks = [asyncio.create_task(sender.run()) for sender in senders]
    started = time.monotonic()
    try:
        for tick in range(2**62):
            for position, (node, sender) in enumerate(zip(nodes, senders, strict=True)):
                due = started + tick + position / plan.count
                if (wait := due - time.monotonic()) > 0.002:
                    await asyncio.sleep(wait)
                if seconds is not None and due - started >= seconds:
                    return _counts(senders)
                sender.offer(node.sample(1000.0 + due - started, time.time()))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return _counts(senders)


def _counts(senders: list[Sender]) -> dict[str, int]:
    return {
        "nodes": len(senders),
        "connected": sum(sender.connected for sender in senders),
        "sent": sum(sender.sent for sender in senders),
        "dropped": sum(sender.dropped for sender in senders),
        "failures": sum(sender.failures for sender in senders),
    }
