"""Each scenario renders, lints, and is what every version of Kubernetes accepts."""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests import process, schemas
from tests.charts.conftest import CHART, Objects, binaries, containers

from cotenant.cli import app
from cotenant.detect import templates

SCENARIOS = sorted(path.stem.removeprefix("values-") for path in CHART.glob("values-*.yaml"))
NEWEST = "1.37"
VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
"""All that there are schemas of; there are none of 1.24."""
EVERYTHING = (
    "node.evict=true",
    "node.nri.enabled=true",
    "kata.enabled=true",
    "scheduler.extender.beside=true",
    "manager.latency=true",
    "strategyTemplates.ledger.qosClass=LSR",
)
ELSEWHERE = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "CustomResourceDefinition"}
"""Kinds of the Prometheus operator are not Kubernetes' own; definitions are tried in ``tests/api``."""

Render = Callable[..., Objects]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_lint(helm: pathlib.Path, scenario: str) -> None:
    command = [str(helm), "lint", "--strict", "--quiet", str(CHART), f"--values={CHART}/values-{scenario}.yaml"]
    done = process.run(command)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_valid(objects: Objects, version: str) -> None:
    for one in objects:
        if one["kind"] not in ELSEWHERE:
            schemas.validate(one, version)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_object_of_a_scenario_is_valid(render: Render, scenario: str) -> None:
    assert_valid(render(scenario, version=f"{NEWEST}.0"), NEWEST)


@pytest.mark.parametrize("version", VERSIONS)
def test_with_everything_switched_on_every_version_takes_it(render: Render, version: str) -> None:
    assert_valid(render("full", *EVERYTHING, version=f"{version}.0"), version)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_renders_for_the_oldest_version(render: Render, scenario: str) -> None:
    assert not any(one["kind"].startswith("ValidatingAdmission") for one in render(scenario, version="1.24.0"))


def test_older_versions_are_refused(helm: pathlib.Path) -> None:
    command = [str(helm), "template", str(CHART), "--kube-version=1.23.0"]
    done = process.run(command)
    assert done.returncode != 0
    assert "1.24" in done.stderr


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_option_that_a_container_gets_exists(render: Render, scenario: str) -> None:
    for name, container, _ in containers(render(scenario)):
        if "command" in container:
            continue
        words = [argument for argument in container["args"] if not argument.startswith("--")]
        known = _options(*words)
        given = {argument.partition("=")[0] for argument in container["args"] if argument.startswith("--")}
        assert given <= known, f"{name}: {given - known}"


def _options(command: str, *below: str) -> set[str]:
    import typer.main

    built: Any = typer.main.get_command(app.build([command])).commands[command]  # type: ignore[attr-defined]
    for word in below:
        built = built.commands[word]
    return {option for parameter in built.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_container_may_more_than_it_needs(render: Render, scenario: str) -> None:
    for name, container, pod in containers(render(scenario)):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"], name
        assert container["resources"]["limits"]["memory"], name
        assert "cpu" not in container["resources"]["limits"], f"{name}: a quota would stop it when it is needed"
        if pod.get("hostPID"):
            continue
        assert context["runAsNonRoot"], name
        assert context["capabilities"] == {"drop": ["ALL"]}, name
        assert not context["allowPrivilegeEscalation"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not any("hostPath" in volume for volume in pod.get("volumes", [])), name


def test_an_agent_that_observes_can_write_to_nothing_of_the_host_but_its_journal(render: Render) -> None:
    (agent,) = [(one, pod) for name, one, pod in containers(render("observe-only")) if name.endswith("/node")]
    container, pod = agent
    assert not container["securityContext"]["privileged"]
    hosts = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
    writable = {m["mountPath"] for m in container["volumeMounts"] if m["name"] in hosts and not m.get("readOnly")}
    assert writable == {"/run/cotenant"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_object_carries_the_labels_and_the_namespace(render: Render, scenario: str) -> None:
    for one in render(scenario):
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "cotenant", one["metadata"]["name"]
        assert re.fullmatch(r"[a-z-]+", labels["app.kubernetes.io/component"])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("node.moode=observe", "moode"),
        ("node.mode=observ", "observe"),
        ("analyzer.samplesPerMessage=6", "maximum"),
        ("node.period=1h", "pattern"),
    ],
)
def test_a_value_that_is_not_known_is_refused_with_its_name(helm: pathlib.Path, value: str, why: str) -> None:
    command = [str(helm), "template", str(CHART), f"--set={value}"]
    done = process.run(command)
    assert done.returncode != 0
    assert why in done.stderr


def test_monitors_name_ports_that_there_are(render: Render) -> None:
    objects = render("full", "monitoring.enabled=true")
    services = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Service"}
    monitors = [one for one in objects if one["kind"] == "ServiceMonitor"]
    assert len(monitors) == 3
    for one in monitors:
        ports = {port["name"] for port in services[one["metadata"]["name"]]["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in one["spec"]["endpoints"]} <= ports
    (pods,) = [one for one in objects if one["kind"] == "PodMonitor"]
    agent = next(container for name, container, _ in containers(objects) if name.endswith("cotenant-node/node"))
    assert pods["spec"]["podMetricsEndpoints"][0]["port"] in {port["name"] for port in agent["ports"]}


def test_what_a_program_says_is_not_overwritten_by_its_targets_labels(render: Render) -> None:
    objects = render("full", "monitoring.enabled=true")
    found = [
        endpoint
        for one in objects
        for endpoint in (*one.get("spec", {}).get("endpoints", ()), *one.get("spec", {}).get("podMetricsEndpoints", ()))
        if one["kind"] in ("ServiceMonitor", "PodMonitor")
    ]
    assert len(found) == 5
    assert all(endpoint["honorLabels"] is True for endpoint in found)


def test_alerts_and_dashboards_come_as_they_are(render: Render) -> None:
    objects = render("full", "monitoring.enabled=true")
    (rule,) = [one for one in objects if one["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    files = {path.name: json.loads(path.read_text()) for path in CHART.glob("files/dashboards/*.json")}
    found = [one for one in objects if one["metadata"]["name"].startswith("cotenant-dashboard-")]
    assert len(found) == len(files) >= 6
    for one in found:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((name, text),) = one["data"].items()
        assert json.loads(text) == files[name.removeprefix("cotenant-")]


def promtool(*words: str) -> None:
    """Have Prometheus' own tool judge; skip where it cannot be had."""
    try:
        tool = binaries.promtool()
    except binaries.NotToBeHad as error:
        pytest.skip(str(error))
    done = process.run([str(tool), *words])
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_alerts() -> None:
    promtool("check", "rules", str(CHART / "files/alerts.yaml"))


@pytest.mark.parametrize(
    ("program", "series", "fires"),
    [
        ("Manager", [], False),  # never installed
        ("Manager", [("cotenant_manager_leading", "0 1x20")], False),
        ("Manager", [("cotenant_manager_leading", "0x20")], True),  # it runs and does not lead
        ("Manager", [("cotenant_manager_leading", "1 1 1 _x18")], True),  # its pods are gone
        ("Analyzer", [], False),  # one host, or agents alone
        ("Analyzer", [("cotenant_analyzer_leading", "0 1x20"), ("cotenant_node_samples_sent_total", "0+60x20")], False),
        ("Analyzer", [("cotenant_analyzer_leading", "1 1 1 _x18")], True),
        ("Analyzer", [("cotenant_node_samples_sent_total", "0x20")], True),  # it never came up, and agents want it
    ],
)
def test_a_program_without_a_leader_is_told_where_it_is_wanted(
    program: str, series: list[tuple[str, str]], fires: bool, tmp_path: pathlib.Path
) -> None:
    rules = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    (rule,) = [one for one in rules["groups"][0]["rules"] if one["alert"] == f"Cotenant{program}WithoutLeader"]
    alert = {"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}
    test = {
        "rule_files": [str(CHART / "files/alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "alert_rule_test": [
                    {"eval_time": "20m", "alertname": rule["alert"], "exp_alerts": [alert] if fires else []}
                ],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(file))


def test_strategy_templates_reach_every_program_that_reads_them(render: Render) -> None:
    objects = render("full", "strategyTemplates.ledger.qosClass=LSR", "strategyTemplates.ledger.weights.ioCongestion=1")
    (config,) = [one for one in objects if one["metadata"]["name"] == "cotenant-strategy-templates"]
    found = templates.parse(config["data"]["templates.yaml"], "the chart's")
    assert found["ledger"].qos_class == "LSR"
    told = {
        name
        for name, container, _ in containers(objects)
        if "--templates=/etc/cotenant/templates/templates.yaml" in container.get("args", [])
    }
    assert told == {
        "DaemonSet/cotenant-node/node",
        "Deployment/cotenant-analyzer/analyzer",
        "Deployment/cotenant-manager/manager",
    }


def test_the_admission_policy_is_the_one_that_the_page_explains(render: Render) -> None:
    page = (CHART.parents[1] / "docs/scheduler.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (text,) = [block for block in blocks if "ValidatingAdmissionPolicy" in block]
    explained = {one["kind"]: one["spec"] for one in yaml.safe_load_all(text)}
    installed = {one["kind"]: one["spec"] for one in render("observe-only") if one["kind"] in explained}
    assert installed == explained
