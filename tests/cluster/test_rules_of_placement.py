"""The real kube-scheduler with our extender places pods as the plain rules say, and evicts nobody for nothing.

The reports come from a file, so that each case is known to the last figure; the rules are written out here anew.
"""

import contextlib
import datetime
import json
import math
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import objects
import pipeline
import programs
import pytest
from objects import PODS, wait_for

import cluster

CASES = 200
NODES = tuple(f"kwok-{number}" for number in range(cluster.KWOK_NODES))
FULL, FREE = "kwok-0", "kwok-1"


def status(seeded: random.Random) -> dict[str, Any]:
    """Return the status of one report: with a level or without, in time or expired, some with a hard limit."""
    expires = "2020-01-01T00:00:00Z" if seeded.random() < 0.15 else "2099-01-01T00:00:00Z"
    known = seeded.random() < 0.85
    return {
        "observedAt": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "expiresAt": expires,
        "coverage": seeded.choice((0.5, 0.75, 1.0)) if known else 0.0,
        "hard": ["psiIoSome"] if seeded.random() < 0.25 else [],
        **({"interferenceLevel": round(seeded.random(), 2)} if known else {}),
    }


def write_reports(path: pathlib.Path, statuses: dict[str, dict[str, Any]]) -> None:
    kind = {"apiVersion": "cotenant.io/v1alpha1", "kind": "NodeInterferenceReport"}
    items = [{**kind, "metadata": {"name": name}, "status": value} for name, value in statuses.items()]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def in_time(value: dict[str, Any]) -> bool:
    return value["expiresAt"] > datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def allowed(candidates: list[str], statuses: dict[str, dict[str, Any]], is_exempt: bool) -> set[str]:
    """Return where the pod may go: not where a hard limit holds, unless that is everywhere."""
    limited = {name for name in candidates if in_time(statuses[name]) and statuses[name]["hard"]}
    return set(candidates) if is_exempt or limited == set(candidates) else set(candidates) - limited


def best(choice: set[str], statuses: dict[str, dict[str, Any]]) -> set[str]:
    """Return the nodes with the highest whole score among those that are asked about."""
    known = {
        name: statuses[name]
        for name in choice
        if in_time(statuses[name]) and statuses[name].get("interferenceLevel") is not None
    }
    mean = sum(value["interferenceLevel"] for value in known.values()) / len(known) if known else 0.0

    def score(name: str) -> int:
        if name not in known:
            return math.floor(10 * (1 - mean) + 0.5)
        coverage, level = known[name]["coverage"], known[name]["interferenceLevel"]
        return math.floor(10 * (1 - coverage * level - (1 - coverage) * mean) + 0.5)

    scores = {name: score(name) for name in choice}
    return {name for name in choice if scores[name] == max(scores.values())}


def restricted(name: str, candidates: list[str]) -> dict[str, Any]:
    """Return a pod that may only go to some simulated nodes."""
    body = objects.pod(name, "kwok")
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": candidates}]}]
    body["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    return body


def node_of(name: str) -> str:
    return str(cluster.request("GET", f"{PODS}/{name}")["spec"].get("nodeName") or "")


@pytest.fixture
def reports(kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file of reports that the extender follows, and a kube-scheduler that asks it."""
    path = tmp_path / "reports.json"
    write_reports(path, {})
    with pipeline.extender(tmp_path, f"--reports={path}"), pipeline.asked_scheduler():
        yield path


def test_two_hundred_seeded_cases_are_placed_as_the_plain_rules_say(reports: pathlib.Path) -> None:
    seeded = random.Random(20261130)
    statuses = {name: status(seeded) for name in NODES}
    write_reports(reports, statuses)
    limited = sum(bool(value["hard"]) for value in statuses.values())
    assert limited >= 2
    wait_for(lambda: len(pipeline.held_by_extender(NODES[-1])) > 3, 10, "the extender to read its file")
    missed, by_score = [], 0
    for case in range(CASES):
        candidates = sorted(seeded.sample(NODES, seeded.randint(2, 6)))
        is_exempt = seeded.random() < 0.1
        body = restricted(f"case-{case}", candidates)
        if is_exempt:
            body["metadata"]["namespace"] = "default"
            body["spec"]["priorityClassName"] = "system-node-critical"
        cluster.request("POST", PODS, body)
        wait_for(lambda: node_of(f"case-{case}"), 20, f"case {case} on one of {candidates}")  # noqa: B023
        found = node_of(f"case-{case}")
        objects.delete(f"{PODS}/case-{case}")
        may = allowed(candidates, statuses, is_exempt)
        favourites = best(may, statuses)
        by_score += len(favourites) < len(may)
        if found not in favourites:
            told = programs.get_json(f"http://{pipeline.EXTENDER}/explain?pod=default/case-{case}")["decisions"]
            missed.append((case, found, sorted(may), sorted(favourites), told))
    print(f"{CASES} cases, {by_score} decided by the score among several nodes that fit")
    assert missed == []
    assert by_score > CASES / 4


def filler(name: str, node: str) -> dict[str, Any]:
    body = objects.pod(name, "kwok", {"requests": {"cpu": "900m"}})
    body["spec"]["nodeName"] = node
    return body


@contextlib.contextmanager
def full_nodes(*names: str) -> Iterator[list[str]]:
    """Fill nodes of 4 CPUs with pods of low priority; yields the pods' names."""
    made = [f"filler-{name}-{number}" for name in names for number in range(4)]
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    cluster.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {**priority, "value": 100000})
    try:
        for name in made:
            cluster.request("POST", PODS, filler(name, name.split("-", 1)[1].rpartition("-")[0]))
        yield made
    finally:
        for name in [*made, "urgent"]:
            objects.delete(f"{PODS}/{name}")
        objects.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent")


def victims(names: list[str]) -> list[str]:
    alive = {
        item["metadata"]["name"]
        for item in cluster.request("GET", PODS)["items"]
        if not item["metadata"].get("deletionTimestamp")
    }
    return [name for name in names if name not in alive]


def urgent(candidates: list[str]) -> dict[str, Any]:
    body = restricted("urgent", candidates)
    body["spec"]["priorityClassName"] = "urgent"
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    return body


def hard(*names: str) -> dict[str, dict[str, Any]]:
    common = {"observedAt": "2026-11-30T00:00:00Z", "expiresAt": "2099-01-01T00:00:00Z", "coverage": 1.0}
    return {
        name: {**common, "interferenceLevel": 0.9, "hard": ["psiIoSome"] if name in names else []} for name in NODES
    }


def test_nobody_is_evicted_from_a_full_node_under_a_hard_limit(reports: pathlib.Path) -> None:
    write_reports(reports, hard(FULL))
    wait_for(lambda: pipeline.held_by_extender(FULL).get("hard"), 10)
    with full_nodes(FULL) as fillers:
        cluster.request("POST", PODS, urgent([FULL]))
        wait_for(lambda: programs.get_json(f"http://{pipeline.EXTENDER}/explain?pod=default/urgent")["decisions"], 20)
        programs.settle(3)
        assert victims(fillers) == []
        assert node_of("urgent") == ""


def test_preemption_takes_the_full_node_that_is_under_no_limit(reports: pathlib.Path) -> None:
    write_reports(reports, hard(FULL))
    wait_for(lambda: pipeline.held_by_extender(FULL).get("hard"), 10)
    with full_nodes(FULL, FREE) as fillers:
        cluster.request("POST", PODS, urgent([FULL, FREE]))
        wait_for(lambda: node_of("urgent"), 30, "the urgent pod to be placed")
        assert node_of("urgent") == FREE
        assert victims(fillers)
        assert all(FREE in name for name in victims(fillers))
