"""The agent as a plugin of the real containerd: containers have their limits when they start."""

import json
import pathlib
import subprocess
import sys

import credentials
import programs
from objects import phase, pod, wait_for

import cluster

SPEC = {"containers": {"main": {"limits": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "100Mi"},
                                "requests": {"kubernetes.io/batch-cpu": "500"}}}}  # fmt: skip
METRICS = "127.0.0.1:17073"


def test_batch_limits_are_there_when_the_container_starts(kubeconfig: pathlib.Path, tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    token.write_text(credentials.token(cluster.STATE / "pki", "kubelet"))
    command = [sys.executable, "-m", "cotenant", "node", "--node=real", "--mode=enforce", "--no-cluster"]
    command += [f"--token-file={token}", f"--kubelet-ca={cluster.STATE}/pki/ca.crt", f"--nri={cluster.STATE}/nri.sock"]
    with (tmp_path / "log").open("wb") as log:
        agent = subprocess.Popen([*command, f"--metrics={METRICS}"], stdout=log, stderr=log)
    try:
        url = f"http://{METRICS}/metrics"
        wait_for(lambda: programs.answers(url) and "cotenant_node_nri_connected 1.0" in programs.get_text(url), 60)
        wanted = pod("batch", "real")
        wanted["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
        wanted["metadata"]["annotations"] = {"node.koordinator.sh/extended-resource-spec": json.dumps(SPEC)}
        wanted["spec"]["containers"][0]["args"] = ["cat /sys/fs/cgroup/cpu/cpu.shares > /dev/null; sleep 600"]
        made = cluster.request("POST", "/api/v1/namespaces/default/pods", wanted)
        wait_for(lambda: phase("batch") == "Running")
        group = pathlib.Path("/sys/fs/cgroup/cpu/kubepods/besteffort") / f"pod{made['metadata']['uid']}"
        shares = {(child / "cpu.shares").read_text().strip() for child in group.iterdir() if child.is_dir()}
        quotas = {(child / "cpu.cfs_quota_us").read_text().strip() for child in group.iterdir() if child.is_dir()}
        assert "512" in shares
        assert "50000" in quotas
    finally:
        cluster.request("DELETE", "/api/v1/namespaces/default/pods/batch")
        agent.terminate()
        assert agent.wait(programs.STOP_SECONDS) == 0, (tmp_path / "log").read_text()
