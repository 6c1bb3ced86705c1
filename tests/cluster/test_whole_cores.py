"""Whole cores on the real node, where the stock kube-scheduler gives none: had, kept, and given back."""

import pathlib
from collections.abc import Iterator

import objects
import programs
import pytest
from objects import PODS, wait_for

import cluster
import node

QOS = "koordinator.sh/qosClass"
WHOLE = {"limits": {"cpu": "1", "memory": "50Mi"}}
HALF = {"limits": {"cpu": "500m", "memory": "50Mi"}}


@pytest.fixture
def groups(kubeconfig: pathlib.Path) -> Iterator[dict[str, str]]:
    """The groups of three pods by name: one that asks for a CPU of its own, one for half of one, one for none."""
    if not pathlib.Path("/sys/fs/cgroup/cpuset/cpuset.cpus").exists():
        pytest.skip("the groups looked at here are those of cgroup v1, where the real node of a test runs today")
    objects.install_node_slos()
    objects.set_node_slo(node.NAME, {})
    made = {
        "own": objects.pod("own", "real", WHOLE, labels={QOS: "LSR"}),
        "half": objects.pod("half", "real", HALF, labels={QOS: "LSR"}),
        "shared": objects.pod("shared", "real", {"requests": {"cpu": "10m"}}, labels={QOS: "LS"}),
    }
    uids = {name: cluster.request("POST", PODS, body)["metadata"]["uid"] for name, body in made.items()}
    try:
        for name in made:
            wait_for(lambda: objects.phase(name) == "Running", 90, name)  # noqa: B023 - called at once
        yield {
            "own": f"kubepods/pod{uids['own']}",
            "half": f"kubepods/pod{uids['half']}",
            "shared": f"kubepods/burstable/pod{uids['shared']}",
        }
    finally:
        for name in made:
            objects.delete(f"{PODS}/{name}")
        objects.delete(f"{objects.NODE_SLOS}/{node.NAME}")


def cpus(group: str) -> set[str]:
    """Return the CPU lists of a pod's containers (its sandbox among them)."""
    below = pathlib.Path("/sys/fs/cgroup/cpuset", group)
    return {(child / "cpuset.cpus").read_text().strip() for child in below.iterdir() if child.is_dir()}


def test_a_pod_has_a_cpu_of_its_own_keeps_it_over_a_restart_and_gives_it_back(
    groups: dict[str, str], tmp_path: pathlib.Path
) -> None:
    everything = cpus(groups["own"])
    agent = programs.node_agent(tmp_path, "--mode=enforce", own_run=tmp_path / "run")
    try:
        took = wait_for(lambda: any(len(listed) == 1 for listed in cpus(groups["own"])), 60, agent.output)
        own = next(listed for listed in cpus(groups["own"]) if len(listed) == 1)
        print(f"CPU {own} was its own {took:.1f} s after the start of the agent")
        wait_for(lambda: not any(own in listed for listed in cpus(groups["shared"])), 30, "the pool to shrink")
        wait_for(lambda: "default/half is served as LS: it asks for 500m" in agent.output(), 10, agent.output)
        assert agent.stop() == 0
        agent = programs.node_agent(tmp_path, "--mode=enforce", own_run=tmp_path / "run")
        wait_for(lambda: agent.output().count("mode enforce") == 2, 30, "the second start")
        programs.settle(15)
        assert own in cpus(groups["own"])
    finally:
        agent.stop()
        done = programs.run(["restore"], own_run=tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert cpus(groups["own"]) == cpus(groups["shared"]) == everything
