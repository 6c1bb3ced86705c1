"""The real agent's NodeMetric and NodeResourceTopology on the real node, beside what kernel and kubelet say."""

import os
import pathlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import objects
import programs
import pytest
from objects import PODS, wait_for

import cluster
import node
from cotenant.api.koordinator import node_metric as api
from cotenant.model import node as nodes

OWN = f"{objects.NODE_METRICS}/{node.NAME}"
MIB = 1 << 20
PART_SECONDS = 15.0
"""A report is a mean over at least so much of the time that a test looks at."""
HOLD = "x=$(head -c 41943040 /dev/zero | tr '\\0' a); while :; do :; done"
"""40 MiB held in a shell's variable, and all of a CPU."""
SPEC = {
    "metricCollectPolicy": {
        "aggregateDurationSeconds": 60,
        "reportIntervalSeconds": 30,
        "nodeAggregatePolicy": {"durations": ["20s", "30m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }
}


@pytest.fixture(scope="module")
def groups(kubeconfig: pathlib.Path) -> Iterator[dict[str, str]]:
    """Two pods by name, one of them at work, and a NodeMetric that asks for figures."""
    if not pathlib.Path("/sys/fs/cgroup/cpuacct/cpuacct.usage").exists():
        pytest.skip("the accounts compared here are those of cgroup v1, where the real node of a test runs today")
    objects.install_koordinators_kinds()
    some = {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "200Mi"}}
    made = {
        "busy": objects.pod("busy", "real", some, command=HOLD, labels={"koordinator.sh/qosClass": "LS"}),
        "calm": objects.pod("calm", "real"),
    }
    objects.delete(OWN)
    uids = {name: cluster.request("POST", PODS, body)["metadata"]["uid"] for name, body in made.items()}
    cluster.request(
        "POST",
        objects.NODE_METRICS,
        {"apiVersion": api.API_VERSION, "kind": api.KIND, "metadata": {"name": node.NAME}, "spec": SPEC},
    )
    try:
        for name in made:
            wait_for(lambda: objects.phase(name) == "Running", 90, name)  # noqa: B023 - called at once
        yield {"busy": f"kubepods/burstable/pod{uids['busy']}", "calm": f"kubepods/besteffort/pod{uids['calm']}"}
    finally:
        for name in made:
            objects.delete(f"{PODS}/{name}")
        objects.delete(OWN)


def usage_seconds(group: str) -> float:
    """Return the CPU time of a group by the kernel's own account."""
    return int(pathlib.Path("/sys/fs/cgroup/cpuacct", group, "cpuacct.usage").read_text()) / 1e9


def anonymous_bytes(group: str) -> int:
    text = pathlib.Path("/sys/fs/cgroup/memory", group, "memory.stat").read_text()
    return sum(
        int(re.search(rf"^total_{name} (\d+)$", text, re.MULTILINE)[1])
        for name in ("inactive_anon", "active_anon", "unevictable")
    )  # type: ignore[index]


def node_seconds() -> float:
    words = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(words[column]) for column in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


class Accounts(threading.Thread):
    """The kernel's own accounts, twice a second: on a machine that others share, use is not the same all the time."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        super().__init__(daemon=True)
        self._groups = groups
        self._ending = threading.Event()
        self.seen: list[tuple[float, dict[str, float]]] = []

    def run(self) -> None:
        while not self._ending.wait(0.5):
            seconds = {name: usage_seconds(group) for name, group in self._groups.items()}
            self.seen.append((time.monotonic(), {**seconds, "node": node_seconds()}))

    def __enter__(self) -> "Accounts":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()

    def holds(self, name: str, cores: float, *, ratio: float, slack: float = 0.0) -> bool:
        """Return whether the mean over some part of the time is about so many cores."""
        means = [
            (later[1][name] - earlier[1][name]) / (later[0] - earlier[0])
            for number, earlier in enumerate(self.seen)
            for later in self.seen[number:]
            if later[0] - earlier[0] >= PART_SECONDS
        ]
        print(f"{name}: {cores:.3f} cores told, {min(means):.3f} to {max(means):.3f} seen")
        return min(means) * (1 - ratio) - slack <= cores <= max(means) * (1 + ratio) + slack


def resident_kib(pid: int) -> int:
    match = re.search(r"^VmRSS:\s+(\d+) kB$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1])


def status() -> dict[str, Any]:
    return cluster.request("GET", OWN).get("status") or {}


def cores(resource_map: dict[str, Any]) -> float:
    found = api.ResourceMap(resources=resource_map["resources"]).millicores()
    assert found is not None
    return found / 1000


def test_figures_agree_with_the_kernels_own_accounts_and_end_with_the_object(
    groups: dict[str, str], tmp_path: pathlib.Path
) -> None:
    agent = programs.node_agent(tmp_path, own_run=tmp_path / "run")
    try:
        with Accounts(groups) as accounts:
            took = wait_for(lambda: status().get("podsMetric"), 60, agent.output)
            reported = time.monotonic()
            wait_for(lambda: status()["nodeMetric"].get("aggregatedNodeUsages"), 60, "aggregates over 20 s")
            found = status()
        pods = {entry["name"]: entry for entry in found["podsMetric"]}
        print(f"first report after {took:.1f} s")
        assert accounts.holds("busy", cores(pods["busy"]["podUsage"]), ratio=0.1)
        assert accounts.holds("calm", cores(pods["calm"]["podUsage"]), ratio=0.1, slack=0.01)
        told = int(pods["busy"]["podUsage"]["resources"]["memory"])
        assert told == pytest.approx(anonymous_bytes(groups["busy"]), rel=0.25)
        assert told > 40 * MIB
        assert (pods["busy"]["qos"], pods["busy"]["priority"]) == ("LS", "koord-prod")
        assert (pods["calm"]["qos"], pods["calm"]["priority"]) == ("BE", "koord-batch")
        whole = found["nodeMetric"]
        assert accounts.holds("node", cores(whole["nodeUsage"]), ratio=0.25)
        known = sum(cores(entry["podUsage"]) for entry in found["podsMetric"])
        assert cores(whole["systemUsage"]) == pytest.approx(cores(whole["nodeUsage"]) - known, abs=0.2)
        zones = sum(cores(entry["nodeUsage"]) for entry in whole["numaUsages"])
        assert accounts.holds("node", zones, ratio=0.25)
        assert [entry["duration"] for entry in whole["aggregatedNodeUsages"]] == ["20s"]
        assert "prodPeakMetric" not in found
        assert cluster.request("GET", OWN)["spec"] == SPEC
        first = found["updateTime"]
        took = wait_for(lambda: status()["updateTime"] != first, 60)
        print(f"the next report after {took:.1f} s")
        programs.settle(max(90 - (time.monotonic() - reported), 0))  # a minute, so that predictions have begun
        resident_mib = resident_kib(agent.pid) / 1024
        print(f"the agent holds {resident_mib:.0f} MiB")
        assert resident_mib <= 64
        objects.delete(OWN)
        programs.settle(2)
        assert agent.returncode is None
        assert objects.found(OWN) is None
    finally:
        agent.stop()
    assert agent.returncode == 0, agent.output()
    assert (tmp_path / "state/prediction.json").exists()


TOPOLOGY = f"{objects.TOPOLOGIES}/{node.NAME}"
OWN_CPU = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "1"}'}


@pytest.fixture
def topologies(kubeconfig: pathlib.Path) -> Iterator[None]:
    objects.install_koordinators_kinds()
    objects.delete(TOPOLOGY)
    yield
    objects.delete(f"{PODS}/own-cpu")
    objects.delete(TOPOLOGY)


def annotations() -> dict[str, str]:
    found: dict[str, str] = cluster.request("GET", TOPOLOGY)["metadata"].get("annotations") or {}
    return found


def read_back() -> nodes.Topology:
    return nodes.decode_topology(cluster.request("GET", TOPOLOGY), "nrt", nodes.Topology(cpus=()))


def test_the_topology_is_accepted_follows_pods_and_is_left_alone_otherwise(
    topologies: None, tmp_path: pathlib.Path
) -> None:
    agent = programs.node_agent(tmp_path, own_run=tmp_path / "run")
    try:
        took = wait_for(lambda: objects.found(TOPOLOGY), 60, agent.output)
        print(f"written {took:.1f} s after the start of the agent")
        found = read_back()
        assert len(found.cpus) == os.cpu_count()
        assert found.kubelet_policy == "none"
        assert "".join(pool.cpuset for pool in found.share_pools or ()) == f"0-{(os.cpu_count() or 1) - 1}"
        wait_for(lambda: annotations().get(nodes.CPU_MANAGER_ANNOTATION) == '{"policy":"none"}', 70, "its CPU policy")
        whole = cluster.request("GET", TOPOLOGY)
        assert [zone["name"] for zone in whole["zones"]] == sorted({f"node-{cpu.node}" for cpu in found.cpus})
        assert whole["metadata"]["ownerReferences"][0]["kind"] == "Node"
        cluster.request(
            "POST", PODS, objects.pod("own-cpu", "real", labels={"koordinator.sh/qosClass": "LSR"}, annotations=OWN_CPU)
        )
        took = wait_for(lambda: all("1" not in pool.cpuset for pool in read_back().share_pools or ()), 60)
        print(f"the pool left the pod's CPU out {took:.1f} s after it was made")
        written = annotations()
        programs.settle(12)
        assert annotations() == written
    finally:
        agent.stop()
    assert agent.returncode == 0, agent.output()
