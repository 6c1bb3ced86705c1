"""Rules changed with kubectl: in force at once, refused, taken back by themselves, and put back by a person."""

import contextlib
import copy
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import objects
import pipeline
import programs
import pytest
from objects import wait_for

import cluster

NOISY = "kwok-0"
DEFAULT = f"{pipeline.RULES}/default"
EVENTS = "/api/v1/namespaces/default/events"
TRIAL_SECONDS = 600
BASE: dict[str, Any] = {
    "windowSeconds": 10,
    "detections": {
        "ioCongestion": {
            "signals": [{"signal": "psi.io_some_ratio", "normal": 0.1, "threshold": 0.3, "saturation": 0.5}]
        }
    },
    "hardLimits": {"psiMemoryFullRatio": 1, "psiIoSomeRatio": 1},
    "hysteresis": {"enterFor": 2, "hardEnterForSeconds": 2, "leaveForSeconds": 2, "minHoldSeconds": 5},
    "guard": {"maxExcludedFraction": 0.2, "trialSeconds": TRIAL_SECONDS},
}
"""No hard limit in force; half of the nodes stall on I/O for 0.7 of the time."""


def changed(**parts: Any) -> dict[str, Any]:
    """Return the base with parts replaced."""
    return {**copy.deepcopy(BASE), **parts}


EXCLUDING = changed(hardLimits={"psiMemoryFullRatio": 1, "psiIoSomeRatio": 0.3})


def kubectl(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the real kubectl as the administrator."""
    command = [str(pathlib.Path(sys.executable).parent / "kubectl"), *arguments]
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=programs.RUN_SECONDS,
        check=False,
        env=programs.environment(),
    )


def apply(spec: dict[str, Any]) -> int:
    """Apply rules for all nodes; return the object's generation."""
    kind = {"apiVersion": "cotenant.io/v1alpha1", "kind": "DetectionRuleConfig", "metadata": {"name": "default"}}
    done = kubectl("apply", "-f", "-", text=json.dumps({**kind, "spec": spec}))
    assert done.returncode == 0, done.stderr
    return int(cluster.request("GET", DEFAULT)["metadata"]["generation"])


def status() -> dict[str, Any]:
    return dict(cluster.request("GET", DEFAULT).get("status") or {})


def condition(kind: str, generation: int) -> dict[str, Any]:
    """Return what is said of a generation; empty where nothing is."""
    for one in status().get("conditions") or []:
        if one["type"] == kind and one["observedGeneration"] == generation:
            return dict(one)
    return {}


def in_force(generation: int) -> float:
    """Wait until a generation is in force; return how long that took."""
    return wait_for(
        lambda: status().get("activeGeneration") == generation and condition("Valid", generation)["status"] == "True",
        20,
        f"generation {generation} to be in force",
    )


def triggered(node: str = NOISY) -> bool:
    return any(found.get("triggered") for found in pipeline.report(node).get("detections") or [])


def limited() -> list[str]:
    return [
        item["metadata"]["name"]
        for item in cluster.request("GET", pipeline.REPORTS)["items"]
        if item["metadata"]["name"] != "cluster" and item.get("status", {}).get("hard")
    ]


@pytest.fixture(scope="module")
def streaming(kubeconfig: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Streams of the simulated nodes, half of them disturbed, for all tests of this file."""
    directory = tmp_path_factory.mktemp("rules")
    pipeline.install(BASE)
    objects.delete(DEFAULT)
    with contextlib.ExitStack() as running:
        running.callback(pipeline.clean)
        running.enter_context(pipeline.simulated(directory, cluster.KWOK_NODES, "--noisy-ratio=0.5"))
        yield directory


@pytest.fixture
def analyzer(streaming: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[programs.Program]:
    """An analyzer with the base in force, and no trial of it left that could matter: it excludes nobody."""
    with pipeline.analyzer(tmp_path) as program:
        in_force(apply(changed(windowSeconds=11)))
        in_force(apply(BASE))
        wait_for(triggered, 60, "a disturbed node's report")
        yield program


def test_a_valid_change_is_taken_hot_and_an_invalid_one_keeps_the_last_good(analyzer: programs.Program) -> None:
    signal = {"signal": "psi.io_some_ratio", "normal": 0.1, "threshold": 0.95, "saturation": 1.0}
    valid = apply(changed(detections={"ioCongestion": {"signals": [signal]}}))
    print(f"a change is in force after {in_force(valid):.1f} s")
    took = wait_for(lambda: not triggered(), 40, "the report to follow the higher threshold")
    print(f"the report follows it after {took:.1f} s")

    misspelt = {"signal": "psi.io_sum_ratio", "normal": 0.1, "threshold": 0.3, "saturation": 0.5}
    invalid = apply(changed(detections={"ioCongestion": {"signals": [misspelt]}}))
    wait_for(lambda: condition("Valid", invalid), 20, "what became of the invalid change")
    found = condition("Valid", invalid)
    assert (found["status"], found["reason"]) == ("False", "Refused")
    assert "psi.io_sum_ratio" in found["message"]
    assert "psi.io_some_ratio" in found["message"]  # the nearest valid name
    assert status()["activeGeneration"] == valid
    programs.settle(3)
    assert not triggered()  # the last good one still holds

    refused = kubectl("apply", "-f", "-", text=json.dumps({
        "apiVersion": "cotenant.io/v1alpha1", "kind": "DetectionRuleConfig",
        "metadata": {"name": "default"}, "spec": {"windowSecond": 5},
    }))  # fmt: skip
    assert refused.returncode != 0
    assert "windowSecond" in refused.stderr


def test_a_change_that_excludes_too_much_is_taken_back_and_a_person_puts_the_object_right(
    analyzer: programs.Program,
) -> None:
    good = status()["activeGeneration"]
    bad = apply(EXCLUDING)
    took = wait_for(lambda: condition("RolledBack", bad), 40, "the change to be rolled back")
    print(f"rolled back {took:.1f} s after kubectl apply: {condition('RolledBack', bad)['message']}")
    assert status()["activeGeneration"] == good
    assert " of 20 nodes" in condition("RolledBack", bad)["message"]  # at most the ten that are disturbed
    events = kubectl("get", "events", "--field-selector", "reason=RolledBack", "-o", "json")
    told = [event for event in json.loads(events.stdout)["items"] if f"generation {bad} " in event["message"]]
    assert [(event["type"], event["involvedObject"]["kind"]) for event in told] == [("Warning", "DetectionRuleConfig")]
    wait_for(lambda: not limited(), 40, "no node to be limited any more")
    assert cluster.request("GET", DEFAULT)["spec"]["hardLimits"]["psiIoSomeRatio"] == 0.3  # as it was written

    listed = programs.run(["config", "history", "--cluster", "--namespace=default"])
    assert listed.returncode == 0, listed.stderr
    done = programs.run(["config", "rollback", "--cluster", "--namespace=default"])
    assert done.returncode == 0, done.stderr
    put_back = cluster.request("GET", DEFAULT)
    assert put_back["spec"]["hardLimits"]["psiIoSomeRatio"] == 1
    in_force(put_back["metadata"]["generation"])


def test_a_trial_outlives_its_leader(analyzer: programs.Program, tmp_path: pathlib.Path) -> None:
    good = status()["activeGeneration"]
    bad = apply(EXCLUDING)
    in_force(bad)
    analyzer.kill()  # the window is not full yet: nobody is excluded
    (tmp_path / "next").mkdir()
    with pipeline.analyzer(tmp_path / "next") as following:
        took = wait_for(lambda: condition("RolledBack", bad), 60, following.output)
        print(f"rolled back {took:.1f} s after the leader had been killed")
        assert status()["activeGeneration"] == good
