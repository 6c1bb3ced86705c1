import json
import pathlib

import pytest
from tests.kernel.tree import Tree

from cotenant.cli import app


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = app.run(["check", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    tree = Tree(tmp_path, v1=("cpu", "memory"))
    tree.file("sys/fs/cgroup/cpu/cpu.qos_level", "0")
    tree.file("proc/sys/kernel/osrelease", "5.10.0-216.0.0.115.oe2203sp4.aarch64")
    tree.file("proc/cpuinfo", "processor : 0\nCPU implementer : 0x48")
    tree.file("sys/devices/system/cpu/smt/active", "0")
    return tree


def test_the_report(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--root", str(tree.directory), "--json")
    found = json.loads(out)
    assert status == 0
    assert found["kernel"] == "5.10.0-216.0.0.115.oe2203sp4.aarch64"
    assert found["arch"] == "aarch64"
    assert found["cgroup"] == {"version": "v1"}
    interface = found["priority_interface"]
    assert (interface["name"], interface["levels"], interface["sticky"]) == ("openeuler-qos-level", [0, -1], True)
    assert interface["smt_expulsion"] is False
    assert interface["mapping"]["-1"] == {"cpu.qos_level": "-1"}
    assert {feature["state"] for feature in found["features"]} <= {"available", "missing", "disabled", "unknown"}
    assert found["conflicts"] == []


def test_for_people(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--root", str(tree.directory))
    assert status == 0
    assert "openeuler-qos-level" in out
    assert "identity 1 becomes level 0" in " ".join(out.split())
    assert "Nothing is in the way." in out


def test_what_is_required(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    base = ("--root", str(tree.directory))
    assert run(capsys, *base, "--require", "cpu", "--require", "openeuler-qos-level")[0] == 0
    assert run(capsys, *base, "--require", "cpu", "memory")[0] == 0
    status, out, err = run(capsys, *base, "--require", "cpu", "io", "psi")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "io: missing" in err
    assert "psi=1" in err
    status, out, err = run(capsys, *base, "--json", "--require", "anolis-bvt")
    assert status == 1
    assert json.loads(out)["priority_interface"]["name"] == "openeuler-qos-level"
    assert "anolis-bvt: this node has openeuler-qos-level" in err


def test_a_name_that_does_not_exist_is_bad_usage(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "--root", str(tree.directory), "--require", "cpu-bursts")
    assert status == 2
    assert "did you mean 'cpu-burst'?" in err
    assert run(capsys, "--root", str(tree.directory), "psi")[0] == 2


def test_an_override(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    base = ("--root", str(tree.directory), "--json", "--priority-interface")
    assert json.loads(run(capsys, *base, "weights-only")[1])["priority_interface"]["name"] == "weights-only"
    assert run(capsys, *base, "tencent-offline")[0] == 2
    assert run(capsys, *base, "tencent")[0] == 2


def test_workloads_that_use_identity_1(tree: Tree, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    def pod(name: str, annotation: str | None) -> dict[str, object]:
        annotations = {} if annotation is None else {"koordinator.sh/cpuQOS": annotation}
        metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": annotations}
        return {"metadata": metadata, "spec": {"containers": []}, "status": {"qosClass": "Burstable"}}

    pods = [
        pod("plain", None),
        pod("one", '{"enable": true, "groupIdentity": 1}'),
        pod("two", '{"enable": true, "groupIdentity": 2}'),
        pod("loose", '{"groupIdentity": 1}'),
    ]
    file = tmp_path / "pods.json"
    file.write_text(json.dumps({"kind": "PodList", "items": pods}))
    status, out, _ = run(capsys, "--root", str(tree.directory), "--json", "--workloads", str(file))
    assert status == 0
    assert json.loads(out)["workloads"] == {"identity_1": ["ns/one"], "without_enable": ["ns/loose"]}
    assert run(capsys, "--workloads", str(tmp_path / "none"))[0] == 2
