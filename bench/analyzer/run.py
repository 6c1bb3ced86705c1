"""What 5,000 nodes cost the analyzer, and how soon a report follows: streams from one generator process.

Run: ``python bench/analyzer/run.py [--nodes 5000] [--json]``; under a minute for each of the two ways of sending (one
sample a message, and five). The design's rows: at most 60 % of one core with calm nodes batched, 600 MiB, at most 5
report writes a second while all nodes are calm and 20 in a storm.

The analyzer here is the program's own receiver, detectors and writer, over gRPC on loopback; only the API server is
left out: the sink counts. All nodes count as published before, so that the first reports are not measured as changes.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import grpc.aio

from cotenant.analyzer import receiving
from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.rulebook import Rulebook
from cotenant.analyzer.writing import Writer
from cotenant.api import report, timestamp
from cotenant.api.v1 import stream_pb2, stream_pb2_grpc
from cotenant.model import sample
from cotenant.node.simulation import SimulatedNode
from cotenant.units.clock import SystemClock

CONNECT_SECONDS, SETTLE_SECONDS, CALM_SECONDS, ONSET_SECONDS, STORM_SECONDS = 12, 6, 10, 12, 10
NOISY = 50
CHANNELS = 8
TARGETS = {"cpu_percent": 60.0, "rss_mebibytes": 600.0, "calm_writes_per_sec": 5.0, "storm_writes_per_sec": 20.0}
HEARTBEAT_SECONDS = 1200


class Sink:
    """Counts reports, and notes when each node was first reported as triggered."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.triggered: dict[str, float] = {}

    async def write(self, name: str, value: report.NodeInterferenceReport) -> None:
        now = time.monotonic()
        if name != report.CLUSTER:
            self.times.append(now)
            if any(found.triggered for found in value.status.detections):
                self.triggered.setdefault(name, now)


async def analyze(nodes: int, batch: int) -> None:
    """Be the analyzer until stdin ends; print the address first and the figures last."""
    clock, sink = SystemClock(), Sink()
    fleet = Fleet(Rulebook(), clock)
    observed = timestamp.render(clock.wall())
    calm = report.ReportStatus(bucket="none", interference_level=0.0, observed_at=observed)
    fleet.take_over({f"node-{number}": calm for number in range(nodes)}, 30.0)  # window and hold, as a new leader
    receiver = receiving.Receiver(fleet, receiving.Instructions(samples_per_message=batch))
    writing = asyncio.create_task(Writer(fleet, sink, clock).run())
    loop = asyncio.get_running_loop()
    async with receiving.serving(receiver, "127.0.0.1:0") as port:
        print(port, flush=True)
        marks: list[tuple[str, float, float, int, int]] = []
        while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            used = resource.getrusage(resource.RUSAGE_SELF)
            marks.append((word, time.monotonic(), used.ru_utime + used.ru_stime, fleet.samples, receiver.connected))
        writing.cancel()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures = {"marks": marks, "times": sink.times, "triggered": sink.triggered, "rss": peak}
        print(json.dumps({**figures, "refused": fleet.refused}), flush=True)


async def generate(nodes: int, batch: int, address: str) -> None:
    """Stream all nodes' samples; become noisy where stdin says so (a number of nodes)."""
    simulated = [(SimulatedNode(f"node-{n}", False, 1), SimulatedNode(f"node-{n}", True, 1)) for n in range(nodes)]
    noisy = 0
    behind = 0.0
    channels = [
        grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(CHANNELS)
    ]
    started = time.monotonic() + CONNECT_SECONDS

    async def messages(position: int) -> AsyncIterator[stream_pb2.Upward]:
        nonlocal behind
        calm, loud = simulated[position]
        yield stream_pb2.Upward(hello=stream_pb2.Hello(node=calm.name))
        kept: list[stream_pb2.Sample] = []
        tick = 0
        while True:
            due = started + tick + position / nodes
            wait = due - time.monotonic()
            behind = max(behind, -wait)
            await asyncio.sleep(max(wait, 0))
            hurt = position < noisy
            uptime = 1000.0 + due - started
            taken = (loud if hurt else calm).sample(uptime, time.time())
            kept.append(stream_pb2.Sample(uptime_seconds=uptime, json=sample.encode(taken)))
            tick += 1
            if (tick + position) % batch == 0 or hurt:  # at once, as a node whose value is past an alarm
                yield stream_pb2.Upward(batch=stream_pb2.Batch(samples=kept))
                kept = []

    async def stream(position: int) -> None:
        await asyncio.sleep(position / nodes * (CONNECT_SECONDS - 3))
        async for _ in stream_pb2_grpc.StreamStub(channels[position % CHANNELS]).Samples(messages(position)):
            pass

    tasks = [asyncio.create_task(stream(position)) for position in range(nodes)]
    loop = asyncio.get_running_loop()
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        noisy, behind = int(word), 0.0
    print(json.dumps({"behind": behind}), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def role(*words: str) -> "subprocess.Popen[str]":
    """Start this file in one of its two roles; it ends when its stdin does."""
    return subprocess.Popen(
        [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def say(process: "subprocess.Popen[str]", word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def measure(nodes: int, batch: int) -> dict[str, float | int | None]:
    """Return the figures of one way of sending."""
    sizes = ("--nodes", str(nodes), "--batch", str(batch))
    analyzer = role("--role", "analyze", *sizes)
    assert analyzer.stdout is not None
    port = analyzer.stdout.readline().strip()
    generator = role(
        "--role", "generate", "--nodes", str(nodes), "--batch", str(batch), "--address", f"127.0.0.1:{port}"
    )
    try:
        time.sleep(CONNECT_SECONDS + SETTLE_SECONDS)
        say(analyzer, "calm")
        time.sleep(CALM_SECONDS)
        say(analyzer, "onset")
        onset = time.monotonic()
        say(generator, str(NOISY))
        time.sleep(ONSET_SECONDS)
        say(analyzer, "storm")
        say(generator, str(nodes))
        time.sleep(STORM_SECONDS)
        say(analyzer, "end")
        generated, _ = generator.communicate(timeout=30)
        figures = json.loads(analyzer.communicate(timeout=30)[0])
    finally:
        for process in (generator, analyzer):
            process.kill()
            process.wait()
    at = {word: figures_then for word, *figures_then in figures["marks"]}

    def between(first: str, last: str, index: int) -> float:
        return float(at[last][index] - at[first][index])

    def writes(first: str, last: str) -> float:
        count = sum(at[first][0] <= when < at[last][0] for when in figures["times"])
        return count / between(first, last, 0)

    lags = sorted(when - onset for name, when in figures["triggered"].items() if int(name.partition("-")[2]) < NOISY)
    return {
        "samples_per_message": batch,
        "connected": at["end"][3],
        "samples_per_sec": round(between("calm", "onset", 2) / between("calm", "onset", 0)),
        "cpu_percent": round(100 * between("calm", "onset", 1) / between("calm", "onset", 0), 1),
        "storm_cpu_percent": round(100 * between("storm", "end", 1) / between("storm", "end", 0), 1),
        "rss_mebibytes": round(figures["rss"], 1),
        "calm_writes_per_sec": round(writes("calm", "onset"), 2),
        "storm_writes_per_sec": round(writes("storm", "end"), 1),
        "reported": len(lags),
        "lag_p50_s": round(lags[len(lags) // 2], 2) if lags else None,
        "lag_max_s": round(lags[-1], 2) if lags else None,
        "generator_behind_s": round(json.loads(generated)["behind"], 2),
        "refused": figures["refused"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--batches", type=int, nargs="+", default=[5, 1])
    parser.add_argument("--role", choices=("analyze", "generate"), help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "analyze":
        asyncio.run(analyze(options.nodes, options.batch))
        return
    if options.role == "generate":
        asyncio.run(generate(options.nodes, options.batch, options.address))
        return
    for batch in options.batches:
        found = measure(options.nodes, batch)
        if options.json:
            print(json.dumps({"nodes": options.nodes, **found}), flush=True)
            continue
        print(f"{options.nodes} nodes, {batch} samples a message ({found['connected']} streams at the end)")
        for name, value in found.items():
            target = TARGETS.get(name)
            print(f"  {name:22} {value}" + (f"   (to hold: <= {target:g})" if target is not None else ""), flush=True)
        print(f"  heartbeats add {options.nodes / HEARTBEAT_SECONDS:.1f} writes a second, computed from their interval")


if __name__ == "__main__":
    main()
