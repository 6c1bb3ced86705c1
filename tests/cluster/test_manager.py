"""The manager's controllers against the real API server: changes, refusals, conflicts, restarts, and who leads."""

import asyncio
import concurrent.futures
import contextlib
import pathlib
import signal
import threading
import time
import urllib.error
from collections.abc import Iterator

import managing
import objects
import programs
import pytest
import yaml
from managing import NODE_METRICS, NODE_SLOS, leads, manager, metric, write_config
from objects import wait_for
from processes import Processes

import cluster
import node
from cotenant.kube.client import Client
from cotenant.kube.configuration import load_configuration
from cotenant.manager import program
from cotenant.manager.controller import Context
from cotenant.units.clock import SystemClock

FIRST, SECOND = 18090, 18091
MANY = 1000
MANY_LABEL = "cotenant.io/test-many"


def threshold(percent: int, **more: object) -> dict[str, object]:
    return {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": percent}, **more}


@pytest.fixture
def prepared(kubeconfig: pathlib.Path) -> Iterator[None]:
    managing.prepare()
    managing.clean()
    yield
    managing.clean()


def all_have(percent: int) -> bool:
    found = managing.suppress_percents()
    return set(found) == managing.node_names() and set(found.values()) == {percent}


def test_nodes_get_their_policy_and_what_is_wrong_is_told(prepared: None, tmp_path: pathlib.Path) -> None:
    pool = {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "kwok-1"}}, "cpuSuppressThresholdPercent": 30}
    write_config(resource_threshold=threshold(61, nodeStrategies=[{"name": "one", **pool}, {"name": "two", **pool}]))
    with manager(tmp_path, FIRST):
        took = wait_for(lambda: set(managing.policies()) == managing.node_names(), 30, "a NodeSLO of each node")
        print(f"{len(managing.node_names())} NodeSLOs {took:.1f} s after the start")
        found = managing.suppress_percents()
        assert found.pop("kwok-1") == 30
        assert set(found.values()) == {61}
        wait_for(
            lambda: "one and two select the same nodes (kwok-1)" in objects.found(managing.STATE)["data"]["conditions"],
            20,
            "the overlap to be named",
        )
        write_config(resource_threshold=threshold(161))
        wait_for(lambda: cluster.request("GET", managing.EVENTS)["items"], 20, "an Event")
        (event,) = cluster.request("GET", managing.EVENTS)["items"]
        assert event["reason"] == "SLOConfigRefused"
        assert "clusterStrategy.cpuSuppressThresholdPercent is 161: not within 0..100" in event["message"]
        conditions = yaml.safe_load(cluster.request("GET", managing.STATE)["data"]["conditions"])
        assert {one["type"]: one["status"] for one in conditions}["resource-threshold-config"] == "False"
        assert metric(FIRST, "cotenant_manager_slo_config_valid", key="resource-threshold-config") == 0.0
        assert managing.suppress_percents()["kwok-0"] == 61
        write_config(resource_threshold=threshold(62))
        took = wait_for(lambda: all_have(62), 30, "the change on all nodes")
        print(f"a change is on all nodes after {took:.1f} s")
        cluster.add_simulated_nodes(900, 1)
        wait_for(lambda: "kwok-900" in managing.policies(), 10, "a new node's NodeSLO")
        cluster.remove_simulated_nodes(900, 1)
        wait_for(lambda: "kwok-900" not in managing.policies(), 20, "the NodeSLO to go with its node")


def test_metrics_are_asked_for_while_somebody_reads_them(prepared: None, tmp_path: pathlib.Path) -> None:
    write_config(
        colocation={"enable": True, "metricReportIntervalSeconds": 45, "metricAggregatePolicy": {"durations": ["5m"]}}
    )
    with manager(tmp_path, FIRST):
        wait_for(lambda: len(cluster.request("GET", NODE_METRICS)["items"]) == len(managing.node_names()), 30)
        asked = cluster.request("GET", f"{NODE_METRICS}/kwok-0")["spec"]["metricCollectPolicy"]
        assert asked["reportIntervalSeconds"] == 45
        assert asked["nodeAggregatePolicy"] == {"durations": ["5m0s"]}
    managing.clean()
    with manager(tmp_path, FIRST, "--node-metric=never"):
        wait_for(lambda: set(managing.policies()) == managing.node_names(), 30)
        assert cluster.request("GET", NODE_METRICS)["items"] == []


def test_the_real_node_is_amplified_and_is_itself_again(prepared: None, tmp_path: pathlib.Path) -> None:
    """The real kubelet writes what the machine has; what comes in is multiplied by the webhook."""
    path = f"/api/v1/nodes/{node.NAME}"

    def cpu() -> float:
        text = cluster.request("GET", path)["status"]["allocatable"]["cpu"]
        return float(text[:-1]) / 1000 if text.endswith("m") else float(text)

    def annotations() -> dict[str, str]:
        return dict(cluster.request("GET", path)["metadata"].get("annotations") or {})

    own = cpu()
    ratio, raw = "node.koordinator.sh/resource-amplification-ratio", "node.koordinator.sh/raw-allocatable"
    pool = {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node.NAME}}, "enable": True}
    write_config(resource_amplification={"nodeConfigs": [{**pool, "resourceAmplificationRatio": {"cpu": 1.5}}]})
    webhook = ("--register-webhooks", "--webhook-url=https://127.0.0.1:19443", "--webhook-listen=127.0.0.1:19443")
    with manager(tmp_path, FIRST, *webhook) as running:
        try:
            took = wait_for(lambda: cpu() == own * 1.5, 60, "the kubelet's status to come in multiplied")
            print(f"allocatable was {own}, and {own * 1.5} {took:.1f} s after the start")
            assert annotations()[ratio] == '{"cpu":1.5}'
            assert yaml.safe_load(annotations()[raw])["cpu"] == f"{own:.0f}"
            programs.settle(12)  # the kubelet writes its own again and again
            assert cpu() == own * 1.5
            write_config()
            took = wait_for(lambda: cpu() == own, 60, "the machine's own amount")
            print(f"it was the machine's own again {took:.1f} s after the strategy was gone")
            wait_for(lambda: not {ratio, raw} & set(annotations()), 10)
        finally:
            running.stop()  # or it would write them again
            for kind in ("mutating", "validating"):
                objects.delete(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/cotenant-webhook")
            cleared = {"annotations": {ratio: None, raw: None}, "labels": {"cotenant.io/amplified": None}}
            objects.patch(path, {"metadata": cleared})


class Neighbour(threading.Thread):
    """Writes an extension of its own into a NodeSLO again and again, as a third-party program would."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._path = f"{NODE_SLOS}/{name}"
        self.ending = threading.Event()
        self.wrote = 0

    def run(self) -> None:
        while not self.ending.wait(0.02):
            self.write(self.wrote + 1)

    def write(self, turn: int) -> None:
        found = cluster.request("GET", self._path)
        found["spec"]["extensions"] = {"theirs": {"turn": turn}}
        try:
            cluster.request("PUT", self._path, found)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        else:
            self.wrote = turn


def test_beside_another_writer_of_the_same_object(prepared: None, tmp_path: pathlib.Path) -> None:
    with manager(tmp_path, FIRST):
        wait_for(lambda: "kwok-0" in managing.policies(), 30)
        neighbour = Neighbour("kwok-0")
        neighbour.start()
        try:
            for percent in range(40, 60):
                write_config(resource_threshold=threshold(percent))
                wait_for(lambda percent=percent: managing.suppress_percents()["kwok-0"] == percent, 20)
        finally:
            neighbour.ending.set()
            neighbour.join()
        found = managing.policies()["kwok-0"]["spec"]
        assert found["extensions"] == {"theirs": {"turn": neighbour.wrote}}
        assert found["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 59
        conflicts = metric(FIRST, "cotenant_manager_write_conflicts_total", controller="node-slo")
        print(f"the neighbour wrote {neighbour.wrote} times; {conflicts:.0f} of our writes were repeated")


def test_a_leader_is_killed_in_the_middle_of_a_change(prepared: None, tmp_path: pathlib.Path) -> None:
    write_config(resource_threshold=threshold(50))
    with manager(tmp_path, FIRST) as first:
        wait_for(lambda: leads(FIRST), 20)
        with manager(tmp_path, SECOND):
            wait_for(lambda: all_have(50), 30)
            assert not leads(SECOND)
            write_config(resource_threshold=threshold(51))
            wait_for(lambda: 51 in managing.suppress_percents().values(), 20, "the first write of the change")
            first.kill()
            took = wait_for(lambda: all_have(51), 40, "the other to finish")
            print(f"the other finished {took:.1f} s after the leader was killed")
            assert leads(SECOND)
            assert len(cluster.request("GET", managing.REVISIONS)["items"]) == 2


def test_a_leader_that_stood_still_does_not_write_when_it_wakes(prepared: None, tmp_path: pathlib.Path) -> None:
    write_config(resource_threshold=threshold(50))
    with manager(tmp_path, FIRST) as first:
        wait_for(lambda: leads(FIRST) and all_have(50), 30)
        with manager(tmp_path, SECOND):
            first.signal(signal.SIGSTOP)
            wait_for(lambda: leads(SECOND), 30, "the other to lead")
            write_config(resource_threshold=threshold(51))
            wait_for(lambda: all_have(51), 30)
            write_config(resource_threshold=threshold(50))
            wait_for(lambda: all_have(50), 30)
            write_config(resource_threshold=threshold(52))
            wait_for(lambda: all_have(52), 30)
            versions = {name: one["metadata"]["resourceVersion"] for name, one in managing.policies().items()}
            first.signal(signal.SIGCONT)
            programs.settle(8)
            assert (leads(FIRST), leads(SECOND)) == (False, True)
            now = {name: one["metadata"]["resourceVersion"] for name, one in managing.policies().items()}
            assert now == versions
            assert len(cluster.request("GET", managing.REVISIONS)["items"]) == 4


def test_a_watch_whose_version_is_gone_lists_anew(prepared: None, tmp_path: pathlib.Path) -> None:
    """A new API server does not know the versions that the watches were at: 410, in the middle of a term."""
    write_config(resource_threshold=threshold(50))
    with manager(tmp_path, FIRST):
        wait_for(lambda: all_have(50), 30)
        assert lists(FIRST) == 1
        for percent in (51, 52, 53):  # on a busy machine a restart may take longer than a lease: another term
            Processes(cluster.STATE).kill("kube-apiserver")
            cluster.start_again("kube-apiserver")
            try:
                took = wait_for(lambda: cluster.request("GET", "/readyz").get("text") == "ok", 60)
            except TimeoutError:
                pytest.fail(Processes(cluster.STATE).log_tail("kube-apiserver", 40))
            write_config(resource_threshold=threshold(percent))
            took += wait_for(lambda percent=percent: all_have(percent), 60, "the manager to follow again")
            print(f"the API server was killed; a change was on all nodes {took:.1f} s later")
            if lists(FIRST) > 1:
                break
        assert lists(FIRST) > 1


def lists(port: int) -> float:
    """Return how often the ConfigMap was listed in this term."""
    return metric(port, "cotenant_manager_lists_total", controller="slo-config", kind="config") or 0.0


class SkewedClock(SystemClock):
    """A machine whose date is wrong."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def wall(self) -> float:
        return super().wall() + self._seconds


async def test_clocks_an_hour_apart_change_nothing(prepared: None, kubeconfig: pathlib.Path) -> None:
    write_config(resource_threshold=threshold(50))
    async with contextlib.AsyncExitStack() as opened:
        managers = []
        for seconds in (-3600.0, 3600.0):
            client = await opened.enter_async_context(Client(load_configuration(kubeconfig)))
            context = Context(client=client, clock=SkewedClock(seconds), namespace="cotenant-system")
            managers.append(program.Manager(context, program.CONTROLLERS, ()))
        tasks = [asyncio.create_task(one.run()) for one in managers]
        try:
            leading: list[int] = []
            for percent in (51, 52):
                write_config(resource_threshold=threshold(percent))
                async with asyncio.timeout(40 * objects.PATIENCE):
                    while not await asyncio.to_thread(all_have, percent):
                        assert sum(one.elector.leading for one in managers) <= 1
                        await asyncio.sleep(0.1)
                (who,) = (index for index, one in enumerate(managers) if one.elector.leading)
                leading.append(who)
                tasks[who].cancel()
                await asyncio.gather(tasks[who], return_exceptions=True)
            assert sorted(leading) == [0, 1]  # each led once, and the other took over
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def many(prepared: None) -> Iterator[set[str]]:
    """A thousand simulated nodes, taken away by one call."""
    names = [f"many-{index}" for index in range(MANY)]

    def add(name: str) -> None:
        body = cluster.simulated_node(name)
        body["metadata"]["labels"] |= {MANY_LABEL: "yes", "pool": f"p{int(name[5:]) % 10}"}
        cluster.request("POST", "/api/v1/nodes", body)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(add, names))
    yield set(names)
    selector = f"labelSelector={MANY_LABEL}%3Dyes"
    objects.delete(f"/api/v1/nodes?{selector}")
    leases = cluster.request("GET", cluster.NODE_LEASES)["items"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        named = [one["metadata"]["name"] for one in leases if one["metadata"]["name"].startswith("many-")]
        list(pool.map(lambda name: objects.delete(f"{cluster.NODE_LEASES}/{name}"), named))


def test_a_thousand_nodes(many: set[str], tmp_path: pathlib.Path) -> None:
    write_config(resource_threshold=threshold(50))
    started = time.monotonic()
    with manager(tmp_path, FIRST) as running:
        wait_for(lambda: metric(FIRST, "cotenant_manager_waiting", controller="node-slo") == 0.0, 60)
        wait_for(lambda: many <= set(managing.suppress_percents()), 60, "a NodeSLO of each of a thousand nodes")
        everyone = time.monotonic() - started
        before = metric(FIRST, "cotenant_manager_writes_total", controller="node-slo") or 0.0
        pool = {"nodeSelector": {"matchLabels": {"pool": "p3"}}, "cpuSuppressThresholdPercent": 30}
        write_config(resource_threshold=threshold(50, nodeStrategies=[{"name": "p3", **pool}]))
        took = wait_for(lambda: list(managing.suppress_percents().values()).count(30) == MANY // 10, 30)
        wrote = (metric(FIRST, "cotenant_manager_writes_total", controller="node-slo") or 0.0) - before
        memory = next(
            line for line in pathlib.Path(f"/proc/{running.pid}/status").read_text().splitlines() if "VmRSS" in line
        )
        ticks = pathlib.Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        print(
            f"{MANY} nodes: all NodeSLOs {everyone:.1f} s after the start, a change of {MANY // 10} in {took:.1f} s; "
            f"{memory.split()[1]} KiB, {sum(map(int, ticks)) / 100:.1f} s of a core"
        )
        assert wrote == MANY // 10
