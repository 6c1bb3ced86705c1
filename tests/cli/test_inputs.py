"""Files and options that people get wrong: each is told its place and what to give, before anything is tried."""

import pathlib
import sys

import pytest
from tests import process

from cotenant.cli import app

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/overcommit"


READING_YAML = pytest.mark.parametrize(
    "words",
    [
        ["manager", "admit"],
        ["manager", "render"],
        ["rollout", "plan"],
        ["overcommit", "--node"],
        ["up", "--no-web", "--latency"],
    ],
)


@READING_YAML
def test_bad_yaml_is_told_with_its_line(
    words: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("a: b\n\tc: d\n")
    assert app.run([*words, str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cotenant: {file}: ")
    assert "line 2: " in said
    assert "byte string" not in said
    assert said.count("\n") == 1


@READING_YAML
@pytest.mark.parametrize("value", ["0x_", "!!bool x"])
def test_a_value_that_yaml_cannot_hold_is_told(
    words: list[str], value: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(f"since: {value}\n")
    assert app.run([*words, str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cotenant: {file}: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["overcommit", "--node", "{pod}"], "its kind is Pod; give a Node"),
        (["overcommit", "--node", "{node}", "--pods", "{pod}"], "its kind is Pod; give a PodList or List"),
        (["overcommit", "--node", "{node}", "--config", "{pod}"], "its kind is Pod; give a ConfigMap"),
        (["overcommit", "--node", "{node}", "--metric", "{pod}"], "its kind is Pod; give a NodeMetric"),
        (["rollout", "plan", "{pod}"], "its kind is Pod; give a ColocationRollout"),
    ],
)
def test_another_kind_is_not_taken_for_an_empty_one(
    words: list[str], said: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    assert app.run([word.format(pod=pod, node=EXAMPLE / "node.yaml") for word in words]) == 2
    assert capsys.readouterr().err == f"cotenant: {pod}: {said}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("check --koordinator --daemonsets", "ask one at a time"),
        ("check --koordinator --require psi", "about this node"),
        ("check --daemonsets --workloads pods.json", "about this node"),
        ("check --node n1", "--node goes with --koordinator"),
        ("check --kubeconfig x", "--kubeconfig goes with"),
        ("node --node n1 --metrics 7072", "--metrics 7072: not HOST:PORT"),
        ("manager --listen 8090", "--listen 8090: not HOST:PORT"),
        ("manager --analyzer far:7443", "--analyzer far:7443: plaintext only on loopback"),
        ("simulate nodes --address far:7443", "--address far:7443: plaintext only on loopback"),
        ("recommend --name A_b", "--name: 'A_b': lower-case"),
        ("recommend --from prometheus --url http://127.0.0.1:1", "--url says where Prometheus' API is"),
    ],
)
def test_options_that_cannot_be_meant(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text", "status", "said"),
    [
        pytest.param(
            ["rollout", "plan"],
            "{metadata: {name: r, labels: {a: b}}, spec: {change: {mode: enforce}, stages: [{name: a, soak: 1}], "
            "nodeSelector: {any: thing}, gatess: {}}}",
            2,
            "unknown: spec.stages[0].soak, spec.gatess; docs/rollout.md",
            id="a misspelled gate is no rollout without one",
        ),
        pytest.param(["manager", "admit"], "kind: ConfigMap", 0, "there is no pod in these files", id="no pod"),
        pytest.param(["manager", "admit"], "kind: [Pod]", 0, "there is no pod in these files", id="no kind"),
    ],
)
def test_what_a_file_lacks_or_has_too_much_of_is_told(
    words: list[str], text: str, status: int, said: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    assert app.run([*words, str(file)]) == status
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_simulation_that_is_ended_says_that_nobody_listened() -> None:
    program = (
        "import os, signal, sys\n"
        "from cotenant.cli import app\n"
        "from cotenant.node.simulation import SimulatedNode\n"
        "sampled = SimulatedNode.sample\n"  # ctrl-C at the first sample finds it at work
        "SimulatedNode.sample = lambda *at: os.kill(os.getpid(), signal.SIGINT) or sampled(*at)\n"
        "sys.exit(app.run(['simulate', 'nodes', '--count', '1', '--address', '127.0.0.1:1']))"
    )
    done = process.run([sys.executable, "-c", program])
    assert done.returncode == 2
    assert "no analyzer took a sample" in done.stderr


def test_an_api_server_that_is_not_there_is_named_and_nobody_waits_for_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    assert app.run(["simulate", "nodes", "--follow", "--seconds", "1", "--kubeconfig", str(kubeconfig)]) == 2
    assert "GET http://127.0.0.1:1/api/v1/nodes: ConnectError" in capsys.readouterr().err
