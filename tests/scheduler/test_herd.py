import json
import random
from collections.abc import Callable

import msgspec
import pytest
from tests.scheduler.conftest import MakeExtender

from cotenant.api.objects import Node, Pod
from cotenant.scheduler import herd, placing, scores
from cotenant.scheduler.herd import Herd
from cotenant.scheduler.table import Table
from cotenant.units.clock import ManualClock


def pod(labels: dict[str, str] | None = None, **requests: str) -> Pod:
    spec = {"containers": [{"resources": {"requests": requests}}]}
    return msgspec.convert({"metadata": {"labels": labels or {}}, "spec": spec}, Pod)


def node(cpu: str, memory: str) -> Node:
    return msgspec.convert({"status": {"allocatable": {"cpu": cpu, "memory": memory}}}, Node)


def test_the_load_is_by_requests_class_and_capacity() -> None:
    batch = {"koordinator.sh/qosClass": "BE"}
    assert herd.load_of(pod(batch, cpu="2", memory="1Gi"), node("8", "32Gi")) == pytest.approx(0.25)
    assert herd.load_of(pod(batch, cpu="100m", memory="16Gi"), node("8", "32Gi")) == pytest.approx(0.5)
    assert herd.load_of(pod({"koordinator.sh/qosClass": "LS"}, cpu="2"), node("8", "32Gi")) == pytest.approx(0.125)
    assert herd.load_of(pod(batch), None) == pytest.approx(0.0625)
    assert herd.load_of(pod(batch, cpu="nonsense"), node("bad", "32Gi")) == pytest.approx(0.0625)
    assert herd.load_of(pod(batch, cpu="900"), node("8", "32Gi")) == 1.0


def test_placements_fade_and_are_forgotten() -> None:
    counted = Herd(fade_seconds=10)
    counted.placed("a", 0.1, 0.0)
    fresh = counted.additions(["a", "b"], 0.0)
    assert set(fresh) == {"a"}
    later = counted.additions(["a", "b"], 10.0)
    assert 0 < later["a"] < fresh["a"] / 2
    assert counted.additions(["a", "b"], 60.0) == {}
    assert len(counted) == 0


def test_without_placements_nothing_changes() -> None:
    assert herd.adjusted(["a", "b"], [0.2, 0.4], Herd().additions(["a", "b"], 5.0)) == [0.2, 0.4]


def simulate(levels: list[float], herded: bool, seed: int, own_points: float = 0.0) -> list[int]:
    """Place two bursts of 200 pods, 30 s apart, each on the best node, ties at random, and return the pods by node.

    ``own_points``: how many points the scheduler itself takes from a node for each pod there; 0 is the worst case.
    """
    draw, counted = random.Random(seed), Herd()
    names = [f"n{number}" for number in range(len(levels))]
    placed = [0] * len(levels)
    small = node("32", "128Gi")
    load = herd.load_of(pod({"koordinator.sh/qosClass": "BE"}, cpu="200m"), small)
    now = 0.0
    for _ in range(2):
        for _ in range(200):
            effective = list(levels)
            if herded:
                effective = herd.adjusted(names, effective, counted.additions(names, now))
            points = [
                20 * score - own_points * pods
                for score, pods in zip(scores.kube_scores(effective), placed, strict=True)
            ]
            best = max(points)
            chosen = draw.choice([number for number, value in enumerate(points) if value == best])
            placed[chosen] += 1
            counted.placed(names[chosen], load, now)
            now += 0.02
        levels = [min(1.0, level + pods * load / 2) for level, pods in zip(levels, placed, strict=True)]
        now += 30
    return placed


@pytest.mark.parametrize("own_points", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_two_bursts_of_200_pods_do_not_pile_on_the_one_calm_node(seed: int, own_points: float) -> None:
    levels = [0.0] + [0.5] * 19
    placed = simulate(levels, True, seed, own_points)
    assert sum(placed) == 400
    assert max(placed) / (400 / 20) <= 1.5
    assert placed[0] == max(placed)  # it is still the better one
    assert max(simulate(levels, False, seed)) > 180  # without: nearly a whole burst


def test_bad_nodes_still_get_fewer() -> None:
    placed = simulate([0.1] * 10 + [0.9] * 10, True, 1)
    assert sum(placed[10:]) < sum(placed[:10]) * 0.75


def test_placements_that_are_seen_late_are_expected_meanwhile() -> None:
    """As behind kube-scheduler's limit of its own calls: 200 decisions in a second, seen 100 pods later."""
    late, names, levels = 100, [f"n{number}" for number in range(20)], [0.0] + [0.5] * 19

    def burst(expecting: bool) -> list[int]:
        draw, counted = random.Random(1), Herd()
        chosen: list[str] = []
        for number in range(200):
            now = number * 0.005
            effective = herd.adjusted(names, levels, counted.additions(names, now))
            points = scores.kube_scores(effective)
            best = [name for name, score in zip(names, points, strict=True) if score == max(points)]
            chosen.append(draw.choice(best))
            if expecting and len(best) <= herd.EXPECTED_NODES:
                counted.expect(f"pod-{number}", dict.fromkeys(best, 0.01), now)
            if number >= late:
                counted.forget(f"pod-{number - late}")
                counted.placed(chosen[number - late], 0.01, now)
        return [chosen.count(name) for name in names]

    assert max(burst(False)) > 90
    assert max(burst(True)) <= 1.5 * 10


def test_what_is_expected_is_given_up_when_the_pod_is_gone_placed_or_long_overdue() -> None:
    counted = Herd(fade_seconds=10)
    counted.expect("pod", {"a": 0.5, "b": 0.5}, 0.0)
    assert counted.additions(["a", "b"], 0.0) == {"a": pytest.approx(0.25), "b": pytest.approx(0.25)}
    counted.expect("pod", {"c": 0.5}, 1.0)  # asked again: one pod
    assert counted.additions(["a", "b"], 1.0) == {}
    counted.forget("pod")
    assert counted.additions(["c"], 1.0) == {}
    counted.expect("other", {"a": 0.5}, 1.0)
    assert counted.additions(["a", "b"], 11.0) == {}
    counted.expect("anywhere", dict.fromkeys("abcdefgh", 0.1), 11.0)
    assert counted.additions(list("abcdefgh"), 11.0) == {}


def test_the_answer_and_its_explanation_count_what_was_placed(
    make_extender: MakeExtender, request_body: Callable[[str], bytes], clock: ManualClock
) -> None:
    extender = make_extender()
    before = json.loads(extender.kube_prioritize(request_body("kube-filter-names")))
    best = max(before, key=lambda entry: entry["Score"])
    extender.source.herd = Herd()
    assert json.loads(extender.kube_prioritize(request_body("kube-filter-names"))) == before
    for _ in range(30):
        extender.source.herd.placed(best["Host"], 0.05, clock.monotonic())
    after = json.loads(extender.kube_prioritize(request_body("kube-filter-names")))
    scores_after = {entry["Host"]: entry["Score"] for entry in after}
    assert scores_after[best["Host"]] == 0
    assert [entry for entry in after if entry["Host"] != best["Host"]] == [
        entry for entry in before if entry["Host"] != best["Host"]
    ]
    pod_name = extender.decisions._ring[-1].pod
    told = {entry["node"]: entry for entry in extender.explain_pod(pod_name)["decisions"][0]["nodes"]}
    assert told[best["Host"]]["placedOfLate"] > 1
    assert told[best["Host"]]["score"] == 0


def test_a_pod_counts_once_when_it_gets_its_node() -> None:
    clock, table, counted = ManualClock(), Table(), Herd()
    following = placing.Placements(None, table, counted, clock)  # type: ignore[arg-type]

    def event(kind: str, uid: str, node: str | None, version: int) -> None:
        spec = {"nodeName": node} if node else {}
        encoded = msgspec.json.encode({"metadata": {"uid": uid, "resourceVersion": str(version)}, "spec": spec})
        assert following.hear(kind, encoded) == str(version)

    event("MODIFIED", "old", "n1", 1)  # was there before: not a placement
    event("ADDED", "new", None, 2)
    event("MODIFIED", "new", "n1", 3)
    event("MODIFIED", "new", "n1", 4)
    event("ADDED", "gone", None, 5)
    event("DELETED", "gone", None, 6)
    assert following.placed == 1
    assert set(counted.additions(["n1", "n2"], clock.monotonic())) == {"n1"}
