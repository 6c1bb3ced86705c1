"""The chart's alerts fire when a program is ended or a machine is hurt, and resolve when that is over.

Their expressions are the chart's; only ranges and waits are short, so that it is a matter of seconds.
"""

import contextlib
import pathlib
import re
from collections.abc import Iterator

import pytest
import yaml
from tests.charts.conftest import CHART
from tests.prometheus import cluster, servers
from tests.prometheus.conftest import CALM, HURT
from tests.prometheus.servers import DEADLINE_SECONDS, Process, Prometheus
from tests.waiting import await_true

pytestmark = pytest.mark.real

RANGE, WAIT = "15s", "2s"
SILENT = frozenset({"CotenantManagerWithoutLeader", "CotenantAnalyzerWithoutLeader"})
"""What nobody is to be told of where there is only one host, or only agents."""


def short_rules() -> str:
    """Return the chart's rules with short ranges and waits."""
    written = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    for rule in written["groups"][0]["rules"]:
        rule["expr"] = re.sub(r"\[(?:5|10)m\]", f"[{RANGE}]", rule["expr"])
        rule["for"] = WAIT
    text: str = yaml.safe_dump(written)
    return text


class Watch:
    """A host with ``up``, an analyzer and a node agent that sends to it, a manager, and who watches them."""

    def __init__(self, folder: pathlib.Path, api: cluster.Cluster, ending: contextlib.ExitStack) -> None:
        self.folder = folder
        self.rules(CALM)
        (folder / "alerts.yaml").write_text(short_rules())
        ports = {name: servers.free_port() for name in ("stream", "analyzer", "manager", "node", "up")}
        address = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        kubeconfig = api.kubeconfig()
        commands = {
            "analyzer": [f"--listen={address['stream']}", f"--page={address['analyzer']}", kubeconfig],
            "manager": [f"--listen={address['manager']}", kubeconfig],
            "node": [
                *("--node=n1", "--no-cluster", "--kubelet=http://127.0.0.1:1", f"--state={folder}/state"),
                *(f"--metrics={address['node']}", f"--analyzer={address['stream']}"),
            ],
            "up": [f"--port={ports['up']}", f"--data={folder}/up", f"--rules={folder}/rules.yaml"],
        }
        self.programs: dict[str, Process] = {}
        for name, options in commands.items():
            self.programs[name] = servers.cotenant(folder / f"{name}.log", name, *options)
            ending.callback(self.programs[name].stop)
        self.prometheus = Prometheus(
            folder / "prometheus",
            {
                "global": {"evaluation_interval": "1s"},
                "rule_files": [f"{folder}/alerts.yaml"],
                "scrape_configs": [servers.job(name, address[name], node=name) for name in commands],
            },
        )
        ending.callback(self.prometheus.stop)
        self.prometheus.await_scraped(*commands)

    def rules(self, text: str) -> None:
        """Change the rules of ``up``."""
        new = self.folder / "new.yaml"
        new.write_text(text)
        new.replace(self.folder / "rules.yaml")

    def await_state(self, alert: str, state: str | None, node: str = "") -> None:
        """Wait until an alert is in a state; None: it is not there."""

        def reached() -> bool:
            return self.prometheus.alerts().get((alert, node), {}).get("state") == state

        await_true(reached, f"{alert} {state}", DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    with contextlib.ExitStack() as ending:
        folder = tmp_path_factory.mktemp("watch")
        api = cluster.Cluster(folder)
        ending.callback(api.stop)
        yield Watch(folder, api, ending)


@pytest.mark.parametrize(
    ("program", "alert"),
    [("analyzer", "CotenantAnalyzerWithoutLeader"), ("manager", "CotenantManagerWithoutLeader")],
)
def test_a_program_that_ends_is_told_and_one_that_comes_back(watch: Watch, program: str, alert: str) -> None:
    leading = f"sum(cotenant_{program}_leading)"
    await_true(lambda: watch.prometheus.value(leading) == 1, f"{program} to lead", DEADLINE_SECONDS)
    watch.await_state(alert, None)
    watch.programs[program].stop()
    watch.await_state(alert, "firing")
    watch.programs[program].start()
    watch.await_state(alert, None)


def test_samples_that_nobody_takes_are_told(watch: Watch) -> None:
    """What an agent keeps for an analyzer that is away overflows after half a minute."""
    connected = "cotenant_node_connected"
    await_true(lambda: watch.prometheus.value(connected) == 1, "the agent to be connected", DEADLINE_SECONDS)
    watch.await_state("CotenantSamplesLost", None, "node")
    watch.programs["analyzer"].stop()
    watch.await_state("CotenantSamplesLost", "firing", "node")
    watch.programs["analyzer"].start()
    watch.await_state("CotenantSamplesLost", None, "node")


def test_online_work_that_is_hurt_is_told_with_the_node(watch: Watch) -> None:
    """Of the agent beside it nothing is said: its rules are the preset, and the machine may be busy."""
    watch.await_state("CotenantOnlineWorkHurt", None, "up")
    watch.rules(HURT)
    watch.await_state("CotenantOnlineWorkHurt", "firing", "up")
    alert = watch.prometheus.alerts()["CotenantOnlineWorkHurt", "up"]
    assert "Work on node up has been hurt" in alert["annotations"]["summary"]
    watch.rules(CALM)
    watch.await_state("CotenantOnlineWorkHurt", None, "up")


def test_one_host_alone_is_told_of_no_program_that_it_lacks(watch: Watch, tmp_path: pathlib.Path) -> None:
    up = watch.prometheus.targets()["up"]["labels"]["instance"]
    alone = Prometheus(
        tmp_path,
        {
            "global": {"evaluation_interval": "1s"},
            "rule_files": [f"{watch.folder}/alerts.yaml"],
            "scrape_configs": [servers.job("up", up)],
        },
    )
    try:
        alone.await_scraped("up")

        def all_evaluated() -> bool:
            rules = alone.get("rules")["groups"][0]["rules"]
            return len(rules) > 10 and all(rule["health"] == "ok" for rule in rules)

        await_true(all_evaluated, "every alert to be evaluated", DEADLINE_SECONDS)
        assert SILENT.isdisjoint(name for name, _ in alone.alerts())
    finally:
        alone.stop()
