"""Two bursts of pods while one node is calm and the others are not: they do not pile up on the calm one."""

import collections
import contextlib
import pathlib
from concurrent.futures import ThreadPoolExecutor

import objects
import pipeline
import programs
from objects import PODS, wait_for

import cluster

BURST = 200
RULES = {**pipeline.QUICK_RULES, "hardLimits": {"psiMemoryFullRatio": None, "psiIoSomeRatio": None}}
"""No limit in force: all nodes may be used, the calm one is merely the best by far."""


def burst(number: int) -> None:
    """Make pods all at once."""

    def make(index: int) -> None:
        body = objects.pod(f"burst-{number}-{index}", "kwok", {"requests": {"cpu": "20m"}}, labels={"burst": "1"})
        cluster.request("POST", PODS, body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(BURST)))


def placed() -> collections.Counter[str]:
    """Return how many of the pods each node has."""
    listed = cluster.request("GET", f"{PODS}?labelSelector=burst")["items"]
    return collections.Counter(item["spec"]["nodeName"] for item in listed if item["spec"].get("nodeName"))


def scores_differ() -> bool:
    """Return whether the extender stands on reports that hold: none does before its first look at the lease."""
    return not programs.get_json(f"http://{pipeline.EXTENDER}/readyz")["neutral"]


def test_two_bursts_do_not_pile_up_on_the_one_calm_node(kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pipeline.install(RULES)
    (tmp_path / "noisy").mkdir()
    disturbed = cluster.KWOK_NODES - 1
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.enter_context(pipeline.analyzer(tmp_path))
        running.enter_context(pipeline.simulated(tmp_path, 1))
        running.enter_context(pipeline.simulated(tmp_path / "noisy", disturbed, "--first=1", "--noisy-ratio=1"))
        running.enter_context(pipeline.extender(tmp_path, "--no-verdicts"))
        running.enter_context(pipeline.asked_scheduler())
        wait_for(lambda: pipeline.report("kwok-0").get("interferenceLevel", 1) < 0.1, 60, "the calm node's report")
        for number in range(1, cluster.KWOK_NODES):
            known = f"kwok-{number}"
            wait_for(lambda: pipeline.report(known).get("interferenceLevel", 0) > 0.3, 60, known)  # noqa: B023
        wait_for(scores_differ, 30, "the extender to follow reports and lease")
        try:
            for number in (1, 2):
                burst(number)
                wait_for(lambda: placed().total() == number * BURST, 60, "all pods to be placed")  # noqa: B023
                counts = placed()
                ratio = max(counts.values()) * cluster.KWOK_NODES / counts.total()
                print(f"after burst {number}: max/mean {ratio:.2f}, the calm node has {counts['kwok-0']}")
                assert ratio <= 1.5, counts
                assert counts["kwok-0"] >= 0.8 * BURST * number / cluster.KWOK_NODES  # and it is not avoided either
        finally:
            objects.delete(f"{PODS}?labelSelector=burst")
