import json
import pathlib
from typing import Any

import pytest
from tests.act.machine import Machine

from cotenant.cli import app
from cotenant.kernel import paths
from cotenant.local import groups
from cotenant.units.limit import Limit

pytestmark = pytest.mark.slow

SLO = """
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata: {name: n1}
spec:
  resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota}
  resourceQOSStrategy:
    beClass: {cpuQOS: {enable: true}}
"""
USAGE = {"node": {"cpu_millicores": 1200, "memory_bytes": 1 << 30}, "system": {"cpu_millicores": 1200}, "pods": {}}


class Files:
    """The inputs of one run below a directory, and the run itself."""

    def __init__(self, machine: Machine, directory: pathlib.Path) -> None:
        self.machine, self.directory = machine, directory
        self.slo = SLO

    def run(self, capsys: pytest.CaptureFixture[str], *options: str, usage: bool = True) -> tuple[int, Any, str]:
        pods, slo, used = (self.directory / name for name in ("pods.json", "slo.yaml", "usage.json"))
        pods.write_text(json.dumps({"kind": "PodList", "items": self.machine.listed}))
        slo.write_text(self.slo)
        used.write_text(json.dumps(USAGE))
        given = ["--usage", str(used)] if usage else []
        root = str(self.machine.directory)
        words = ["enforce", "--once", "--root", root, "--pods", str(pods), "--slo", str(slo), *given, *options]
        status = app.run(words)
        out, err = capsys.readouterr()
        return status, json.loads(out) if "--json" in options and out else out, err


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    machine = Machine(tmp_path / "root", "anolis-bvt", cpus=8)
    machine.pod("be", "BestEffort", "BE")
    machine.pod("ls", "Burstable", "LS")
    machine.show(everything=True)
    return Files(machine, tmp_path)


def test_dry_run_prints_the_plan_and_writes_nothing(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_text() for path in files.machine.directory.rglob("*") if path.is_file()}
    status, plan, _ = files.run(capsys, "--dry-run", "--json")
    assert status == 0
    keys = {"op", "path", "old", "new", "strategy", "reason", "irreversible"}
    assert all(set(item) == keys for item in plan)
    quota = [item for item in plan if item["path"].endswith("besteffort/cpu.cfs_quota_us")]
    assert [(item["old"], item["new"], item["op"]) for item in quota] == [("-1", "400000", "write")]
    assert all(not item["path"].startswith("/") for item in plan)
    assert before == {path: path.read_text() for path in files.machine.directory.rglob("*") if path.is_file()}


def test_the_same_plan_is_applied_and_nothing_is_left_to_do(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    _, dry, _ = files.run(capsys, "--dry-run", "--json")
    status, done, err = files.run(capsys, "--json")
    assert (status, done) == (0, dry), err
    for item in done:
        assert (files.machine.directory / item["path"]).read_text() == f"{item['new']}\n"
    assert files.run(capsys, "--json")[:2] == (0, [])


def test_a_policy_that_is_off_leaves_a_running_command_its_priority(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path / "root", "mainline-v1", cpus=8)
    pod = machine.path("cpu", machine.pod("be", "BestEffort", "BE"), "cpu.idle")
    for group in ("cotenant-be", "cotenant-be/make"):
        machine.group(group)
    machine.show(everything=True)
    files = Files(machine, tmp_path)
    own = groups.Groups(paths.Root(machine.directory))
    own.apply(own.contents("cotenant-be/make", "BE", groups.Limits(cpu_millicores=Limit(2000))))
    written = {place: place.read_text() for place in machine.directory.glob("sys/fs/cgroup/**/cotenant-be/**/cpu.*")}
    assert (machine.directory / machine.path("cpu", "cotenant-be/make", "cpu.idle")).read_text() == "1\n"
    files.run(capsys, "--json")
    assert (machine.directory / pod).read_text() == "1\n"
    files.slo = "kind: NodeSLO\nspec: {}\n"
    _, plan, _ = files.run(capsys, "--json")
    assert not [item for item in plan if "cotenant-be" in item["path"]]
    assert (machine.directory / pod).read_text() == "0\n"
    assert {place: place.read_text() for place in written} == written


def test_what_was_written_is_released_when_the_policy_is_off(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    _, done, _ = files.run(capsys, "--json")
    files.slo = "kind: NodeSLO\nspec: {}\n"
    status, undone, _ = files.run(capsys, "--json")
    assert status == 0
    assert {item["path"]: item["new"] for item in undone} == {item["path"]: item["old"] for item in done}


def test_without_usage_the_reason_is_said(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    status, plan, err = files.run(capsys, "--dry-run", "--json", usage=False)
    assert status == 0
    assert {item["strategy"] for item in plan} == {"group_identity"}
    assert "skipped: cpu_suppress: the node's CPU usage is not known" in err


def test_refused_fields_that_are_set_are_named(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.slo = "kind: NodeSLO\nspec: {resourceQOSStrategy: {policies: {netQOSPolicy: terway-qos}}}\n"
    _, _, err = files.run(capsys, "--dry-run", "--json")
    assert "spec.resourceQOSStrategy.policies.netQOSPolicy: not applied:" in err


def test_an_eviction_without_a_cluster_is_left_out(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.slo = "kind: NodeSLO\nspec: {resourceUsedThresholdWithBE: {enable: true, memoryEvictThresholdPercent: 3}}\n"
    USAGE["pods"] = {"default/be": {"cpu_millicores": 1, "memory_bytes": 1 << 30}}
    try:
        status, plan, err = files.run(capsys, "--json")
    finally:
        USAGE["pods"] = {}
    evictions = [item for item in plan if item["op"] == "evict"]
    assert [(item["path"], item["new"]) for item in evictions] == [(None, "default/be")]
    assert status == 3
    assert "nobody here can evict" in err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pods.json", "{", "pods.json"),
        ("slo.yaml", "kind: Pod", "kind is 'Pod'"),
        ("slo.yaml", "a: [", "slo.yaml"),
        ("usage.json", "[]", "usage.json"),
        ("usage.json", "[" * 100_000, "usage.json"),
        ("pods.json", "[" * 100_000, "pods.json"),
        ("slo.yaml", "[" * 5_000, "slo.yaml"),
        ("slo.yaml", "spec: {a: !!float abc}", "slo.yaml"),
    ],
)
def test_a_bad_input_is_one_line_that_names_the_file(
    files: Files, capsys: pytest.CaptureFixture[str], name: str, text: str, message: str
) -> None:
    files.run(capsys, "--dry-run")
    (files.directory / name).write_text(text)
    words = ["enforce", "--once", "--dry-run", "--root", str(files.machine.directory)]
    for option in ("pods", "slo", "usage"):
        suffix = "yaml" if option == "slo" else "json"
        words += [f"--{option}", str(files.directory / f"{option}.{suffix}")]
    assert app.run(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_openeuler_levels_cannot_be_undone_and_the_exit_status_says_so(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path / "root", "openeuler")
    machine.pod("be", "BestEffort", "BE")
    machine.show(everything=True)
    files = Files(machine, tmp_path)
    status, plan, _ = files.run(capsys, "--json", usage=False)
    assert status == 3
    assert any(item["irreversible"] for item in plan)
    assert files.run(capsys, "--json", usage=False)[:2] == (0, [])
