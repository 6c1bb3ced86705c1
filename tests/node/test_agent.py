import pathlib

import pytest

from cotenant.kernel import enforcing, executor, paths
from cotenant.kernel.sampler import Sampler
from cotenant.model.pod import QOS_LABEL, Pod
from cotenant.node.agent import Agent
from cotenant.node.kubelet import Kubelet, PodSource, Settings
from cotenant.node.policy import Policy
from cotenant.units.clock import ManualClock

SLO = {
    "kind": "NodeSLO",
    "spec": {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True}}, "lsClass": {"cpuQOS": {"enable": True}}}},
}


@pytest.fixture
def root(tmp_path: pathlib.Path) -> paths.Root:
    for group in ("", "kubepods", "kubepods/besteffort", "kubepods/besteffort/podu1"):
        directory = tmp_path / "sys/fs/cgroup/cpu" / group
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cpu.idle").write_text("0\n")
        (directory / "cpu.shares").write_text("1024\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    (tmp_path / "proc/stat").write_text("cpu 1 1 1 1\ncpu0 1 1 1 1\n")
    return paths.Root(tmp_path)


class Listed(PodSource):
    """A source that has its list already."""

    def refresh(self) -> bool:
        self._fetched_s = self._clock.monotonic()
        self.pods = (
            Pod(
                namespace="ns", name="batch", uid="u1", kube_qos="BestEffort", labels={QOS_LABEL: "BE"}, phase="Running"
            ),
        )
        return True


def make(root: paths.Root, kept: Policy) -> Agent:
    clock = ManualClock()
    source = Listed(Kubelet(Settings()), clock)
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    agent = Agent(root, Sampler(root, clock=clock), source, kept, enforcer, None, clock)
    agent.refresh_pods()
    return agent


def idle_of(root: paths.Root) -> str:
    return (root.directory / "sys/fs/cgroup/cpu/kubepods/besteffort/podu1/cpu.idle").read_text().strip()


def test_enforce_writes_once_and_a_lost_policy_releases(root: paths.Root) -> None:
    kept = Policy("n1", "enforce")
    kept.take_slo(SLO)
    agent = make(root, kept)
    agent.enforce_once()
    assert idle_of(root) == "1"
    assert agent.status.writes > 0
    written = agent.status.writes
    for _ in range(60):
        agent.enforce_once()
    assert agent.status.writes == written
    kept.take_slo(None)
    agent.enforce_once()
    assert idle_of(root) == "0"


def test_dry_run_plans_and_writes_nothing(root: paths.Root) -> None:
    kept = Policy("n1", "dry-run")
    kept.take_slo(SLO)
    agent = make(root, kept)
    agent.enforce_once()
    assert idle_of(root) == "0"
    assert agent.status.planned > 0
    assert agent.status.writes == 0


def test_a_bad_policy_keeps_limits_in_force(root: paths.Root) -> None:
    kept = Policy("n1", "enforce")
    kept.take_slo(SLO)
    agent = make(root, kept)
    agent.enforce_once()
    kept.take_slo({"kind": "NodeSLO", "spec": "broken"})
    agent.enforce_once()
    assert idle_of(root) == "1"
