"""Quotas of online containers on the real node: divided by a ratio, over a container's restart, and given back; and
offline work held where somebody keeps lifting the directory's quota.
"""

import contextlib
import json
import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator

import objects
import programs
import pytest
from objects import PODS, wait_for

import cluster
import node

QOS = "koordinator.sh/qosClass"
RATIO = "node.koordinator.sh/cpu-normalization-ratio"
CPU = pathlib.Path("/sys/fs/cgroup/cpu")
OFFLINE = CPU / "kubepods/besteffort"
QUOTA = "cpu.cfs_quota_us"
SUPPRESSED = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}


def quotas(group: pathlib.Path) -> dict[pathlib.Path, str]:
    """Return the quotas of a pod's containers by their groups; its sandbox has none."""
    found = {}
    for child in group.iterdir():
        with contextlib.suppress(OSError):  # a file, or a container that ends while we look
            found[child] = (child / QUOTA).read_text().strip()
    return {child: quota for child, quota in found.items() if quota != "-1"}


def end(container: pathlib.Path) -> None:
    """Kill what runs in a container of this test's."""
    for pid in (container / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def said(name: str) -> str:
    """Return what the API server has as events of a pod."""
    listed = cluster.request("GET", "/api/v1/namespaces/default/events")["items"]
    return "\n".join(json.dumps(one) for one in listed if one["involvedObject"].get("name") == name)


def annotate(text: str | None) -> None:
    objects.patch(f"/api/v1/nodes/{node.NAME}", {"metadata": {"annotations": {RATIO: text}}})


@pytest.fixture
def groups(kubeconfig: pathlib.Path) -> Iterator[dict[str, pathlib.Path]]:
    """The groups of an online pod and of an offline one."""
    if not (CPU / "cpu.shares").exists():
        pytest.skip("the figures expected here are those of cgroup v1, where the real node of a test runs today")
    objects.install_node_slos()
    limited = {"limits": {"cpu": "500m", "memory": "50Mi"}, "requests": {"cpu": "100m"}}
    web = objects.pod("web", "real", limited, labels={QOS: "LS"})
    made = {"web": web, "batch": objects.pod("batch", "real", labels={QOS: "BE"})}
    uids = {name: cluster.request("POST", PODS, body)["metadata"]["uid"] for name, body in made.items()}
    try:
        for name in made:
            wait_for(lambda: objects.phase(name) == "Running", 90, name)  # noqa: B023 - called at once
        yield {
            "web": CPU / f"kubepods/burstable/pod{uids['web']}",
            "batch": CPU / f"kubepods/besteffort/pod{uids['batch']}",
        }
    finally:
        annotate(None)
        for name in made:
            objects.delete(f"{PODS}/{name}")
        objects.delete(f"{objects.NODE_SLOS}/{node.NAME}")


def test_a_divided_container_starts_again_on_v1_and_gets_its_whole_quota_back(
    groups: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    objects.set_node_slo(node.NAME, {})
    web = groups["web"]
    annotate("1.25")
    agent = programs.node_agent(tmp_path, "--mode=enforce", own_run=tmp_path / "run")
    try:
        took = wait_for(lambda: set(quotas(web).values()) == {"40000"}, 60, agent.output)
        print(f"divided {took:.1f} s after the start of the agent")
        (first,) = quotas(web)
        end(first)
        took = wait_for(lambda: quotas(web) and first not in quotas(web), 60, "the container to start again")
        print(f"the container was there again {took:.1f} s after it was killed")
        took = wait_for(lambda: set(quotas(web).values()) == {"40000"}, 30, agent.output)
        print(f"and divided {took:.1f} s after that")
        objects.assert_kept(took, 6)  # a new container is asked for, and not waited for until the next list
        assert (web / QUOTA).read_text().strip() == "50000", "a pod below its container's limit would refuse it"
        assert "nvalid argument" not in said("web")
        annotate(None)
        took = wait_for(lambda: set(quotas(web).values()) == {"50000"}, 30, agent.output)
        print(f"whole again {took:.1f} s after the annotation went")
        assert (web / QUOTA).read_text().strip() == "50000"
    finally:
        agent.stop()
        done = programs.run(["restore"], own_run=tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr


def test_where_somebody_keeps_lifting_the_directorys_quota_each_pod_is_held(
    groups: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    objects.set_node_slo(node.NAME, SUPPRESSED)
    batch, ended = groups["batch"], threading.Event()

    def lift() -> None:
        while not ended.wait(0.2):
            (OFFLINE / QUOTA).write_text("-1")

    agent = programs.node_agent(tmp_path, "--mode=enforce", own_run=tmp_path / "run")
    lifting = threading.Thread(target=lift, daemon=True)
    try:
        wait_for(lambda: (OFFLINE / QUOTA).read_text().strip() != "-1", 60, agent.output)
        lifting.start()
        started = time.monotonic()
        wait_for(lambda: (batch / QUOTA).read_text().strip() != "-1", 60, agent.output)
        print(f"the pod was held by a quota of its own after {time.monotonic() - started:.1f} s")
        assert "each group has a quota of its own instead" in agent.output()
        for _ in range(30):
            assert (batch / QUOTA).read_text().strip() != "-1"
            programs.settle(0.1)
        ended.set()
        lifting.join(5)
        programs.settle(3)
        assert (OFFLINE / QUOTA).read_text().strip() == "-1", "left to whoever wrote it"
    finally:
        ended.set()
        agent.stop()
        done = programs.run(["restore"], own_run=tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (batch / QUOTA).read_text().strip() == "-1"
