"""``cotenant manager admit``: what the webhook would make of pods in files."""

import json
import pathlib

import pytest
import yaml

from cotenant.cli import app

PROFILE = """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: batch}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: render}}
  qosClass: BE
  priorityClassName: koord-batch
---
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: wrong}
spec: {selector: {matchExpressions: [{key: a, operator: Like}]}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: frame, namespace: NAMESPACE, labels: {LABELS}}
spec: {containers: [{name: main, image: busybox, resources: {limits: {cpu: 1500m}}}]}
"""


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[str]:
    (tmp_path / "profiles.yaml").write_text(PROFILE)
    frame = POD.replace("NAMESPACE", "render").replace("LABELS", "")
    web = POD.replace("NAMESPACE", "shop").replace("LABELS", "koordinator.sh/qosClass: LSR")
    (tmp_path / "pods.yaml").write_text(f"{frame}---{web}")
    return [str(tmp_path / name) for name in ("profiles.yaml", "pods.yaml")]


def test_json(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["manager", "admit", *files, "--affinity=off", "--json"]) == 1
    printed = capsys.readouterr()
    first, second = json.loads(printed.out)
    assert first["applied"] == ["batch"]
    assert first["pod"]["spec"]["containers"][0]["resources"] == {
        "limits": {"kubernetes.io/batch-cpu": "1500"},
        "requests": {"kubernetes.io/batch-cpu": "1500"},
    }
    assert "affinity" not in first["pod"]["spec"]
    assert second["pod"] is None
    assert "whole number" in second["refused"][0]
    assert "profile wrong matches nothing: spec.selector.matchExpressions[0]" in printed.err


def test_text_is_yaml_again(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["manager", "admit", *files]) == 1
    text = capsys.readouterr().out
    assert "# render/frame: profiles batch" in text
    assert "# shop/frame: refused: " in text
    (pod,) = [one for one in yaml.safe_load_all(text) if one]
    assert pod["spec"]["affinity"]["nodeAffinity"]


def test_quotas_count(files: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "render"},
        "spec": {"hard": {"limits.cpu": "4"}},
    }
    (tmp_path / "quota.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [quota]}))
    assert app.run(["manager", "admit", *files, str(tmp_path / "quota.json"), "--json"]) == 1
    refused = json.loads(capsys.readouterr().out)[0]["refused"][0]
    assert "ResourceQuota render/q counts limits.cpu" in refused


@pytest.mark.parametrize(
    ("labels", "name", "refusal"),
    [
        ("BE", "koord-prod", "BE does not go with koord-prod (priority 9000)"),
        ("LS", "koord-batch", "LS does not go with koord-batch (priority 5000)"),
        ("BE", "nobody-knows", "there is no PriorityClass nobody-knows"),
        ("LS", "", "LS does not go with koord-free (priority 3500)"),  # the default class of the files
        ("SYSTEM", "system-node-critical", None),
    ],
)
def test_a_pod_has_the_priority_of_the_class_that_it_names(
    labels: str, name: str, refusal: str | None, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = yaml.safe_load(POD.replace("NAMESPACE", "shop").replace("LABELS", f"koordinator.sh/qosClass: {labels}"))
    pod["spec"] |= {"priorityClassName": name} if name else {}
    default = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "rest"}}
    default |= {"value": 3500, "globalDefault": True}
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all([pod, default]))
    assert app.run(["manager", "admit", str(tmp_path / "objects.yaml"), "--json"]) == (1 if refusal else 0)
    (found,) = json.loads(capsys.readouterr().out)
    if refusal is None:
        assert found["pod"]["spec"]["priority"] == 2_000_001_000
    else:
        assert refusal in found["refused"][0]


def test_what_is_null_is_absent_but_in_a_patch_and_unknown_fields_are_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(
        """
kind: ClusterColocationProfile
metadata: {name: p, namespace: null}
spec: {qosClas: BE, qosClass: null, schedulerName: null, labels: {a: "1"}, patch: {metadata: {labels: {b: null}}}}
---
kind: Pod
metadata: {name: one, creationTimestamp: 2026-11-30T00:00:00Z, labels: {b: "2", c: null}}
spec:
  containers: [{name: main, resources: {limits: null, requests: {cpu: null}}}]
  priority: null
"""
    )
    assert app.run(["manager", "admit", str(tmp_path / "x.yaml"), "--affinity", "off", "--json"]) == 0
    said = capsys.readouterr()
    (found,) = json.loads(said.out)
    assert found["pod"]["metadata"]["labels"] == {"a": "1"}
    assert found["pod"]["metadata"]["creationTimestamp"] == "2026-11-30T00:00:00Z"
    assert found["pod"]["spec"] == {"containers": [{"name": "main", "resources": {"requests": {}}}]}
    assert said.err == "profile p: nobody knows spec.qosClas\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: Namespace\nmetadata: 5\n", "x.yaml: Namespace"),
        ("kind: Pod\nmetadata: {name: a, labels: {version: 1}}\n", "x.yaml: Pod: Expected `str`, got `int`"),
        (
            "kind: Pod\nspec: {containers: {name: c}}\n",
            "x.yaml: Pod: Expected `array | null`, got `object` - at `$.spec.containers`",
        ),
    ],
)
def test_what_is_no_object_is_named(
    text: str, told: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert app.run(["manager", "admit", str(tmp_path / "x.yaml")]) == 2
    assert told in capsys.readouterr().err


def test_an_address_without_tls_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["manager", "--webhook-url=http://x", "--webhook-listen=127.0.0.1:9443"]) == 2
    assert "--webhook-url http://x: give https://" in capsys.readouterr().err
