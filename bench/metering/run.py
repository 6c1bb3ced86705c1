"""What a NodeMetric costs the node agent: time each second, memory after an hour, size of a report and a checkpoint.

Run: ``python bench/metering/run.py [--pods 150] [--json]``. The agent as a whole may take 2 % of a core (20 ms a
second) and 64 MiB beside 150 pods; metering and prediction are a part of that. An hour is fed, then the seconds after
it are timed.
"""

import argparse
import json
import random
import time
import tracemalloc

import msgspec

from cotenant.model.pod import Container, Pod
from cotenant.model.sample import Cgroup, Cpu, Memory, Sample
from cotenant.node import node_metric, prediction
from cotenant.node.metering import POINTS, Meter
from cotenant.node.prediction import Predictor
from cotenant.node.presence import Presence

TIMED_SECONDS = 300
CPUS, MEMORY_BYTES = 64, 256 << 30
TARGET_MS, TARGET_MIB = 20.0, 64.0


def node_of(pods: int) -> Presence:
    """Return a node with so many pods."""
    own = Container(name="main", requests={"cpu": "1", "memory": "1Gi"})
    return Presence(
        memory_bytes=MEMORY_BYTES,
        pods={
            f"kubepods/burstable/pod{number:036d}": Pod(
                namespace=f"ns-{number % 10}", name=f"pod-{number}", uid=f"{number:036d}", kube_qos="Burstable",
                priority=9000 if number % 2 else 5000, phase="Running", containers=(own,),
            )
            for number in range(pods)
        },
    )  # fmt: skip


def sample_of(present: Presence, chance: random.Random) -> Sample:
    """Return one second in which everybody uses something."""
    groups = [
        Cgroup(
            path=path,
            cpu_used_ratio=chance.random() / CPUS,
            memory_bytes=1 << 30,
            memory_anon_bytes=int(chance.random() * (1 << 30)),
        )
        for path in present.pods
    ]
    return Sample(
        node="n",
        time="t",
        cpu=Cpu(online=CPUS, used_ratio=chance.random()),
        memory=Memory(available_ratio=chance.random()),
        cgroups=groups,
    )


def measure(pods: int) -> dict[str, float]:
    """Return milliseconds a second, MiB, and the sizes of what goes out, in bytes."""
    present, chance = node_of(pods), random.Random(7)
    samples = [sample_of(present, chance) for _ in range(20)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    meter, predictor = Meter(), Predictor(0.0)
    _feed(meter, predictor, present, samples, 0, POINTS)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    started = time.perf_counter()
    _feed(meter, predictor, present, samples, POINTS, TIMED_SECONDS)
    each = (time.perf_counter() - started) / TIMED_SECONDS
    now = float(POINTS + TIMED_SECONDS)
    started = time.perf_counter()
    status = node_metric.status_of(meter, predictor, node_metric.Subject(pods=present.pods), now, now)
    return {
        "pods": pods,
        "ms_each_second": each * 1e3,
        "mib": (after - before) / (1 << 20),
        "status_ms": (time.perf_counter() - started) * 1e3,
        "status_bytes": len(msgspec.json.encode(status)),
        "checkpoint_bytes": len(prediction.dump(predictor)),
    }


def _feed(
    meter: Meter, predictor: Predictor, present: Presence, samples: list[Sample], first: int, seconds: int
) -> None:
    for second in range(first, first + seconds):
        used = meter.take(float(second), samples[second % len(samples)], present)
        predictor.take(used, present.pods, float(second))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.pods)
    if given.json:
        print(json.dumps(found))
        return
    print(f"NodeMetric of a node with {given.pods} pods, after an hour")
    print(f"  each second        {found['ms_each_second']:.2f} ms   (the whole agent: {TARGET_MS:.0f})")
    print(f"  memory             {found['mib']:.2f} MiB  (the whole agent: {TARGET_MIB:.0f})")
    print(f"  a status           {found['status_ms']:.1f} ms, {found['status_bytes'] / 1e3:.0f} kB")
    print(f"  a checkpoint       {found['checkpoint_bytes'] / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
