"""Pods per second of the real kube-scheduler: without us, by labels alone, with the extender, and with it failing.

Failing is: nobody listens (refused), the process that answers is stopped, all of ours is, nobody answers (black-holed).
By labels alone nothing of ours is asked, so that nothing of ours can fail; `cotenant scheduler config` prints that.

Run as root: ``python bench/scheduler/run.py [--nodes 100] [--pods 3000] [--seconds 20] [--json]``. It brings up the
cluster of ``tests/cluster`` without a real node and takes it down again. Each time as many pods wait before the
scheduler starts; counted are whole seconds from the first that is placed until the last, or until the time is over.
The design's row: with our process stopped at least 80 % of without us.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/cluster"))

import objects
import pipeline
import programs
from processes import Processes

import cluster

WITHOUT, LABELS = "without us", "by labels alone"
CASES = (WITHOUT, LABELS, "with the extender", "refused", "worker stopped", "all stopped", "black-holed")
TARGET_RATIO = 0.8
SLOW = ("all stopped", "black-holed")
SLOW_PODS = 300
"""Pods that wait where each takes two timeouts: more than can be placed in the time."""
REMOVE_SECONDS = 180
MIN_SECONDS = 3
"""Fewer whole seconds make no rate."""
QPS = 5000
"""The limit of the scheduler's own calls: with its default, 50, that would be all that is measured."""


def configuration(directory: pathlib.Path, case: str) -> pathlib.Path:
    """Write kube-scheduler's configuration of one case."""
    options = [] if case == LABELS else ["--extender"]
    printed = programs.run(["scheduler", "config", f"--listen={pipeline.EXTENDER}", "--json", *options])
    settings = json.loads(printed.stdout)
    settings["clientConnection"] = {
        "kubeconfig": str(cluster.STATE / "scheduler.kubeconfig"),
        "qps": QPS,
        "burst": QPS,
    }
    settings["leaderElection"] = {"leaderElect": False}
    if case == WITHOUT:
        del settings["extenders"]
    path = directory / "kube-scheduler.json"
    path.write_text(json.dumps(settings))
    return path


@contextlib.contextmanager
def listener_that_never_answers() -> Iterator[None]:
    """Take connections in the extender's place, and say nothing."""
    host, port = pipeline.EXTENDER.split(":")
    with socket.create_server((host, int(port)), backlog=1024):
        yield


@contextlib.contextmanager
def extender_as(case: str, directory: pathlib.Path, reports: pathlib.Path) -> Iterator[None]:
    """Have the extender in the state that a case is about."""
    if case in (WITHOUT, LABELS, "refused"):
        yield
    elif case == "black-holed":
        with listener_that_never_answers():
            yield
    else:
        with pipeline.extender(directory, f"--reports={reports}") as program:
            stopped = {"worker stopped": program.workers(), "all stopped": [program.pid, *program.workers()]}
            for process in stopped.get(case, []):
                os.kill(process, signal.SIGSTOP)
            try:
                yield
            finally:
                for process in stopped.get(case, []):
                    with contextlib.suppress(ProcessLookupError):  # ended by the one that watches it
                        os.kill(process, signal.SIGCONT)


def bound_at() -> list[float]:
    """Return when each placed pod got its node, in seconds since the epoch, whole ones as the API server keeps them."""
    listed = cluster.request("GET", f"{objects.PODS}?labelSelector=bench")["items"]
    return sorted(
        datetime.datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
        for item in listed
        if item["spec"].get("nodeName")
        for condition in item["status"].get("conditions") or []
        if condition["type"] == "PodScheduled" and condition["status"] == "True"
    )


def rate_of(times: list[float]) -> float:
    """Return pods per second from the first second that is whole until the last that is."""
    first, last = times[0] + 1, times[-1]
    if last - first < MIN_SECONDS:
        raise SystemExit(f"{len(times)} pods were placed within {last - first:.0f} whole seconds: give more --pods")
    return sum(first <= time_s < last for time_s in times) / (last - first)


def measure(case: str, pods: int, seconds: float, directory: pathlib.Path, reports: pathlib.Path) -> float:
    """Return pods per second of one case."""
    Processes(cluster.STATE).stop("kube-scheduler")

    def make(number: int) -> None:
        body = objects.pod(f"bench-{number}", "kwok", {"requests": {"cpu": "1m"}}, labels={"bench": "1"})
        cluster.request("POST", objects.PODS, body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(pods)))
    try:
        with extender_as(case, directory, reports):
            cluster.restart_scheduler(configuration(directory, case))
            objects.wait_for(lambda: bound_at(), 60, "the first pod to be placed")
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and len(bound_at()) < pods:
                time.sleep(1)
            return rate_of(bound_at())
    finally:
        remove_pods()


def remove_pods() -> None:
    """Delete the pods, some at a time: an API server takes longer for all at once than a client waits."""
    deadline = time.monotonic() + REMOVE_SECONDS
    some = f"{objects.PODS}?labelSelector=bench&limit=250"
    while cluster.request("GET", some)["items"]:
        objects.delete(some)
        if time.monotonic() > deadline:
            raise SystemExit(f"pods are left after {REMOVE_SECONDS} s of deleting them")


def label(nodes: int) -> None:
    """Put the labels on the nodes that go with the reports."""
    for number in range(nodes):
        labels = {"cotenant.io/interference": ("none", "low", "medium", "high", "severe")[number % 10 // 2]}
        if number % 20 == 1:
            labels["cotenant.io/avoid-online"] = "true"
        objects.patch(f"/api/v1/nodes/kwok-{number}", {"metadata": {"labels": labels}})


def write_reports(path: pathlib.Path, nodes: int) -> None:
    """Write reports of which one in twenty has a hard limit in force."""
    kind = {"apiVersion": "cotenant.io/v1alpha1", "kind": "NodeInterferenceReport"}
    items = [
        {
            **kind,
            "metadata": {"name": f"kwok-{number}"},
            "status": {
                "observedAt": "2026-11-30T00:00:00Z",
                "expiresAt": "2099-01-01T00:00:00Z",
                "interferenceLevel": number % 10 / 10,
                "coverage": 1.0,
                "hard": ["psiIoSome"] if number % 20 == 1 else [],
            },
        }
        for number in range(nodes)
    ]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=20, help="the longest that one case may take")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: the cluster needs root")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the cluster is taken down however this ends
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        reports = directory / "reports.json"
        write_reports(reports, arguments.nodes)
        cluster.up(arguments.nodes, real_node=False)
        try:
            label(arguments.nodes)
            for case in arguments.case or CASES:
                pods = min(arguments.pods, SLOW_PODS) if case in SLOW else arguments.pods
                found[case] = measure(case, pods, arguments.seconds, directory, reports)
                print(f"{case}: {found[case]:.1f} pods/s", file=sys.stderr, flush=True)
        finally:
            cluster.down()
    base = found.get(WITHOUT)
    ratios = {case: rate / base for case, rate in found.items() if base}
    if arguments.json:
        print(json.dumps({"pods_per_sec": found, "ratio": ratios, "target_ratio": TARGET_RATIO}))
        return
    print(f"{arguments.nodes} nodes, {arguments.pods} pods waiting; reference: kube-scheduler without us")
    for case, rate in found.items():
        ratio = f"{ratios[case]:6.0%}" if case in ratios else ""
        print(f"{case:22} {rate:8.1f} pods/s {ratio}")
    print(f"target: with the worker stopped at least {TARGET_RATIO:.0%} of without")


if __name__ == "__main__":
    main()
