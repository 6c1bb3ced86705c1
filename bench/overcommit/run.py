"""What overcommit costs at 5,000 nodes of 30 pods: the analyzer's adding up and the manager's working out.

Run: ``python bench/overcommit/run.py [--nodes 5000] [--pods 30] [--json]``; half a minute. Koordinator works from a
NodeMetric that each node writes once a minute and publishes up to 300 s after it; here a table comes every 4 s, which
has to stay a small part of what the analyzer (60 % of a core) and the manager may take. CPU time of this process, the
fastest of three runs, so that other work on the machine is not measured.
"""

import argparse
import json
import time
from collections.abc import Callable

import msgspec

from cotenant.analyzer.receiving import TABLE_SECONDS
from cotenant.analyzer.tally import Tally
from cotenant.api import usage
from cotenant.manager.overcommit import consumption, nodes, pods, strategy
from cotenant.manager.overcommit.account import Account, Heard
from cotenant.model import sample
from cotenant.units.clock import ManualClock

RUNS = 3
SAMPLES = 4
ON = strategy.of({"enable": True}, {}, {}).strategy
STARTED = "2026-11-30T00:00:00Z"


def pod_object(node: str, number: int) -> pods.PodObject:
    """Return one pod of a node: two in three of online work."""
    value = {
        "metadata": {"namespace": node, "name": f"pod-{number}", "labels": {"koordinator.sh/qosClass": "LS"}},
        "spec": {
            "nodeName": node,
            "priority": 9000 if number % 3 else 5500,
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [{"state": {"running": {"startedAt": STARTED}}}],
        },
    }
    return msgspec.convert(value, pods.PodObject)


def node_facts(name: str) -> nodes.NodeFacts:
    size = {"cpu": "64", "memory": "256Gi"}
    value = {"metadata": {"name": name}, "status": {"capacity": size, "allocatable": size}}
    return nodes.decode(msgspec.convert(value, nodes.NodeObject))


def sample_of(node: str, count: int) -> sample.Sample:
    """Return a sample of a node: each pod's group and that of its container."""
    groups = []
    for number in range(count):
        path, name = f"kubepods/burstable/pod-{number}", f"{node}/pod-{number}"
        used = {"class_": "online", "cpu_used_ratio": 0.01, "memory_bytes": 1 << 28, "memory_anon_bytes": 1 << 27}
        groups.append(sample.Cgroup(path=path, name=name, **used))
        groups.append(sample.Cgroup(path=f"{path}/main", name=f"{name}/main", **used))
    return sample.Sample(
        node=node,
        time=STARTED,
        uptime_s=1.0,
        cpu=sample.Cpu(online=64, used_ratio=0.4),
        memory=sample.Memory(available_ratio=0.6),
        cgroups=groups,
    )


def fastest(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest run."""
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measure(count: int, pods_each: int) -> dict[str, float]:
    """Return what one table costs on both sides."""
    names = [f"node-{number}" for number in range(count)]
    taken = {name: sample_of(name, pods_each) for name in names[:200]}
    samples = [taken[names[number % len(taken)]] for number in range(count)]
    tally = Tally()

    def add() -> None:
        for _ in range(SAMPLES):
            for name, one in zip(names, samples, strict=True):
                tally.take(name, one)

    adding = fastest(add)
    start = time.process_time()
    table = {name: usage.encode(row) for name, row in tally.roll().items()}
    rolling = time.process_time() - start

    clock = ManualClock(wall=1_900_000_000.0)
    facts = {name: node_facts(name) for name in names}
    bound = {name: [pods.decode(pod_object(name, number)) for number in range(pods_each)] for name in names}
    accounts = {name: Account(clock) for name in names}

    def decide() -> None:
        for name, text in table.items():
            use = consumption.of_row(usage.decode(text), facts[name].capacity["memory"])
            listed = [pod for pod in bound[name] if pod is not None]
            accounts[name].decide(facts[name], listed, Heard(use, 1.0), ON)

    deciding = fastest(decide)
    return {
        "nodes": count,
        "pods": count * pods_each,
        "table_seconds": TABLE_SECONDS,
        "table_megabytes": round(sum(len(text) for text in table.values()) / 1e6, 1),
        "usec_per_sample": round(adding / SAMPLES / count * 1e6, 1),
        "analyzer_percent_of_core": round((adding * TABLE_SECONDS / SAMPLES + rolling) / TABLE_SECONDS * 100, 1),
        "usec_per_node": round(deciding / count * 1e6, 1),
        "manager_percent_of_core": round(deciding / TABLE_SECONDS * 100, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.nodes, options.pods)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['nodes']} nodes, {found['pods']} pods, a table of {found['table_megabytes']} MB every 4 s")
    print(f"analyzer: {found['usec_per_sample']} µs a sample, {found['analyzer_percent_of_core']} % of a core")
    print(f"manager: {found['usec_per_node']} µs a node and table, {found['manager_percent_of_core']} % of a core")


if __name__ == "__main__":
    main()
