"""``cotenant overcommit``: the worked example from files, and a node of a cluster."""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from cotenant.cli import app

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/overcommit"
NOW = "2026-11-30T00:01:00Z"
Run = Callable[..., "Done"]


def files(**other: pathlib.Path) -> list[str]:
    given = {name: EXAMPLE / f"{name}.yaml" for name in ("node", "pods", "metric", "config")} | other
    return [text for name, path in given.items() for text in (f"--{name}", str(path))]


class Done:
    """What a call printed, and its exit status."""

    def __init__(self, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
        self.status = app.run(["overcommit", *arguments])
        self.stdout, self.stderr = capsys.readouterr()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *arguments: Done(capsys, arguments)


def stated(run: Run, *arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_the_worked_example(run: Run) -> None:
    found = stated(run, *files(), "--at", NOW)
    assert found["state"] == "current"
    assert found["worked_out"] == {
        "kubernetes.io/batch-cpu": 42_000,
        "kubernetes.io/batch-memory": 32 << 30,
        "kubernetes.io/mid-cpu": 15_000,
        "kubernetes.io/mid-memory": 10 << 30,
    }
    assert found["asked"]["kubernetes.io/batch-cpu"] == 8_000
    assert found["batch"]["cpu"]["high_priority"] == 11_000
    assert found["problems"] == []


def test_times_need_no_quotes_and_null_is_absent(run: Run, tmp_path: pathlib.Path) -> None:
    told = {}
    for name in ("pods", "metric"):
        told[name] = tmp_path / f"{name}.yaml"
        text = re.sub(r'"(2026-[^"]*)"', r"\1", (EXAMPLE / f"{name}.yaml").read_text())
        told[name].write_text(text.replace("metadata: {", "metadata: {uid: null, "))
    assert "startedAt: 2026-11-29T00:00:00Z" in told["pods"].read_text()
    assert stated(run, *files(**told), "--at", NOW) == stated(run, *files(), "--at", NOW)


def test_people_get_cores_and_gib_and_only_the_terms_that_matter(run: Run) -> None:
    text = run(*files(), "--at", NOW).stdout
    assert "its use is known by NodeMetric, 60.0 s old" in text
    assert "42.000 cores" in text
    assert "32.00 GiB" in text
    assert "amplification" not in text


def test_use_that_was_told_too_long_ago_is_said(run: Run) -> None:
    found = stated(run, *files(), "--at", "2026-11-30T00:16:00Z")
    assert (found["state"], found["worked_out"], found["batch"]) == ("degraded", {}, {})
    assert "too long" in run(*files(), "--at", "2026-11-30T00:16:00Z").stdout


def test_a_node_alone_is_enough_to_be_told_what_is_missing(run: Run) -> None:
    assert stated(run, "--node", str(EXAMPLE / "node.yaml"))["state"] == "off"
    done = run("--node", str(EXAMPLE / "node.yaml"), "--config", str(EXAMPLE / "config.yaml"))
    assert "nobody has told of its use" in done.stdout


def test_what_is_not_taken_is_named(run: Run, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text('data: {colocation-config: "{\\"cpuReclaimThresholdPercent\\": -1}"}')
    found = stated(run, *files(config=config), "--at", NOW)
    assert "cpuReclaimThresholdPercent is -1" in found["problems"][0]
    assert "not taken: " in run(*files(config=config), "--at", NOW).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--node FILE"),
        (["n1", "--node", str(EXAMPLE / "node.yaml")], "--node FILE"),
        ([*files(), "--at", "yesterday"], "2026-11-30T00:00:00Z"),
    ],
)
def test_a_wrong_call_is_told_what_to_give(run: Run, arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.status == 2
    assert said in " ".join(done.stderr.split())


def test_a_file_that_is_no_such_object_is_named(run: Run, tmp_path: pathlib.Path) -> None:
    wrong = tmp_path / "pods.yaml"
    wrong.write_text("items: [{spec: 7}]")
    done = run(*files(pods=wrong), "--at", NOW)
    assert done.status == 2
    assert "pods.yaml" in done.stderr


def test_where_the_configmap_is_names_its_namespace(run: Run) -> None:
    done = run("n1", "--slo-config", "slo-controller-config")
    assert done.status == 2
    assert "give NAMESPACE/NAME" in done.stderr
