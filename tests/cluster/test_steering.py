"""End to end: noise on a real node, its report, and where the real kube-scheduler puts new pods."""

import collections
import contextlib
import pathlib
import time
from collections.abc import Iterator

import objects
import pipeline
import programs
import pytest
from objects import PODS, wait_for

import cluster
import node

POOL = "cotenant.io/test-pool"
AVOID = "cotenant.io/avoid-online"
NODES = (node.NAME, "kwok-0", "kwok-1")
FLEET = 200
"""Simulated nodes that stream beside the real one, one in twenty of them disturbed."""
NOISY_RATIO = 0.05
NO_LIMIT = {**pipeline.QUICK_RULES, "hardLimits": {"psiMemoryFullRatio": None, "psiIoSomeRatio": None}}
"""For the simulated nodes: disturbed, and reported so, but none takes the real one's place under the caps."""
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASE_SECONDS = 60
"""After which a lease that did not move ends the truth of all reports."""
NOISE_SECONDS = 600
NOISE = (
    "dd if=/dev/zero of=/noise bs=1M count=100; sync; "
    "for i in 1 2 3 4; do (while true; do cat /noise > /dev/null; done) & done; "
    f"sleep {NOISE_SECONDS}"
)
"""Reads a file that its memory limit does not hold, four times at once: each page comes from the disk again. The pod is
deleted by the test; if the test is killed, the shell ends by itself, and its container with it."""


@pytest.fixture(scope="module")
def fleet(kubeconfig: pathlib.Path) -> Iterator[None]:
    """As many simulated nodes as this file's tests are about."""
    more = FLEET - cluster.KWOK_NODES
    try:
        cluster.add_simulated_nodes(cluster.KWOK_NODES, more)
        yield
    finally:
        cluster.remove_simulated_nodes(cluster.KWOK_NODES, more)


@pytest.fixture
def steered(fleet: None, tmp_path: pathlib.Path) -> Iterator[tuple[programs.Program, ...]]:
    """The pipeline of the real and 200 simulated nodes, three of them to choose from; yields analyzer and scheduler."""
    pipeline.install()
    pipeline.add_rules("simulated", {**NO_LIMIT, "nodeSelector": {"cotenant.io/test-node": "kwok"}})
    for name in NODES:
        objects.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {POOL: "steering"}}})
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.callback(programs.run, ["scheduler", "--clear"])
        analyzer = running.enter_context(pipeline.analyzer(tmp_path))
        noisy = round(FLEET * NOISY_RATIO)
        (tmp_path / "noisy").mkdir()
        running.enter_context(pipeline.simulated(tmp_path, FLEET - noisy))
        running.enter_context(
            pipeline.simulated(tmp_path / "noisy", noisy, f"--first={FLEET - noisy}", "--noisy-ratio=1")
        )
        agent = programs.node_agent(tmp_path, f"--analyzer={pipeline.ANALYZER}", own_run=tmp_path / "run")
        running.callback(agent.stop)
        scheduler = running.enter_context(pipeline.extender(tmp_path))
        running.enter_context(pipeline.asked_scheduler())
        try:
            for name in NODES:
                wait_for(lambda: "interferenceLevel" in pipeline.report(name), 60, f"a report of {name}")  # noqa: B023
            took = wait_for(lambda: len(known_levels()) >= FLEET + 1, 60, "reports of all nodes")
            print(f"{len(known_levels())} nodes are reported, the last {took:.1f} s later")
            yield analyzer, scheduler
        finally:
            for log in tmp_path.glob("*.log"):
                print(f"--- the end of {log.name}\n{log.read_text()[-500:]}")
            for name in NODES:
                objects.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {POOL: None}}})


def known_levels() -> list[float]:
    """Return the levels that are known, of all nodes."""
    items = cluster.request("GET", pipeline.REPORTS)["items"]
    levels = [
        item.get("status", {}).get("interferenceLevel") for item in items if item["metadata"]["name"] != "cluster"
    ]
    return [level for level in levels if level is not None]


@pytest.fixture
def placed() -> Iterator[list[str]]:
    """The names of Deployments that are removed at the end, with their pods."""
    names: list[str] = []
    yield names
    for name in names:
        objects.delete(f"{DEPLOYMENTS}/{name}")
    wait_for(lambda: not any(pods_of(name) for name in names), 60, "pods to be gone")


def pods_of(name: str) -> list[dict]:
    return list(cluster.request("GET", f"{PODS}?labelSelector=app%3D{name}")["items"])


def place(name: str, count: int, placed: list[str], *, keep_off: bool = False) -> collections.Counter[str]:
    """Make a Deployment for the pool and return how many of its pods the scheduler put on each node.

    ``keep_off``: by node affinity to our label, as pods have it that are placed without the extender.
    """
    spec = objects.pod_spec("", {"requests": {"cpu": "10m"}})
    spec["nodeSelector"] = {POOL: "steering"}
    if keep_off:
        terms = [{"matchExpressions": [{"key": AVOID, "operator": "DoesNotExist"}]}]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    placed.append(name)
    cluster.request("POST", DEPLOYMENTS, objects.deployment(name, count, spec))

    def nodes() -> list[str]:
        return [pod["spec"]["nodeName"] for pod in pods_of(name) if pod["spec"].get("nodeName")]

    wait_for(lambda: len(nodes()) == count, 60, f"all pods of {name} to be placed")
    return collections.Counter(nodes())


@contextlib.contextmanager
def noise() -> Iterator[float]:
    """Disturb the real node; yields when that began."""
    body = objects.pod("noise", "real", {"limits": {"cpu": "1", "memory": "12Mi"}}, command=NOISE)
    body["spec"]["nodeName"] = node.NAME
    body["spec"]["restartPolicy"] = "Never"
    body["spec"]["activeDeadlineSeconds"] = NOISE_SECONDS
    cluster.request("POST", PODS, body)
    try:
        wait_for(lambda: objects.phase("noise") == "Running", 60)
        yield time.monotonic()
    finally:
        objects.delete(f"{PODS}/noise")


def is_avoided() -> bool:
    labels = cluster.request("GET", f"/api/v1/nodes/{node.NAME}")["metadata"]["labels"]
    return AVOID in labels


def test_noise_on_the_real_node_steers_new_pods_away_until_it_stops(steered: object, placed: list[str]) -> None:
    wait_for(lambda: pipeline.report().get("hard", []) == [], 60, "a calm node")
    calm = place("calm", 9, placed)
    assert calm[node.NAME] > 0, calm

    with noise() as began:
        wait_for(lambda: pipeline.report().get("hard", []) == ["psiIoSome"], 60, "a report of the limit")
        reported = time.monotonic()
        wait_for(lambda: pipeline.held_by_extender().get("hard"), 10, "the extender to know")
        known = time.monotonic()
        wait_for(is_avoided, 30, "the node's label")
        labelled = time.monotonic()
        disturbed = place("disturbed", 9, placed)
        bound = time.monotonic()
        print(
            f"noise to report {reported - began:.1f} s (window 10 s, 2 s without a break); report to extender "
            f"{known - reported:.2f} s; to label {labelled - reported:.2f} s; nine pods placed in "
            f"{bound - labelled:.1f} s: {dict(disturbed)}"
        )
        assert disturbed[node.NAME] == 0, disturbed
        objects.assert_kept(labelled - reported, 5)

    ended = time.monotonic()
    wait_for(lambda: pipeline.report().get("hard", []) == [], 90, "the limit to be lifted")
    lifted = time.monotonic()
    wait_for(lambda: not pipeline.held_by_extender().get("hard") and not is_avoided(), 10, "extender and label")
    print(
        f"noise ended; report lifted {lifted - ended:.1f} s later, extender and label {time.monotonic() - lifted:.1f} s"
    )
    returned = place("returned", 9, placed)
    print(f"pods return: {dict(returned)}")
    assert returned[node.NAME] > 0, returned


def test_a_verdict_does_not_outlive_our_deployments(steered: tuple[programs.Program, ...], placed: list[str]) -> None:
    with noise():
        wait_for(is_avoided, 90, "the node's label")
        for program in steered:
            program.stop()
        ended = time.monotonic()
        waiting = place("waiting", 3, placed, keep_off=True)
        assert waiting[node.NAME] == 0, waiting  # the label holds for those who ask for it, until its truth ends
        wait_for(lambda: not is_avoided(), LEASE_SECONDS + 60, "the agent to take its own node's verdict off")
    took = time.monotonic() - ended
    print(f"the node's agent took its verdict off {took:.1f} s after analyzer and scheduler were gone")
    objects.assert_kept(took, LEASE_SECONDS + 60)
    after = place("after", 9, placed, keep_off=True)
    assert after[node.NAME] > 0, after
