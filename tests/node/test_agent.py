import pathlib

import pytest

from cotenant.kernel import enforcing, executor, paths, rewriter
from cotenant.kernel.sampler import Sampler
from cotenant.model.evaluation import Detection, Evaluation, Suspect, Victim
from cotenant.model.pod import QOS_LABEL, Container, Pod
from cotenant.model.sample import Cgroup, Cpu, Memory, Sample
from cotenant.node.agent import Agent
from cotenant.node.cpus import Assignments
from cotenant.node.errors import KubeletUnreachable
from cotenant.node.evicting import Evicting
from cotenant.node.kubelet import Kubelet, KubeletConfiguration, PodSource, Settings
from cotenant.node.policy import Policy
from cotenant.units.clock import ManualClock

SLO = {
    "kind": "NodeSLO",
    "spec": {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True}}, "lsClass": {"cpuQOS": {"enable": True}}}},
}


@pytest.fixture(params=[False, True], ids=["files", "live"])
def root(tmp_path: pathlib.Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> paths.Root:
    """A node's files; ``live``: taken for a kernel's, of which a round keeps what the one before it found."""
    if request.param:
        monkeypatch.setattr(paths.Root, "is_machine", property(lambda _: True))
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
    assert agent.status.planned
    assert agent.status.writes == 0


def test_while_nothing_is_decided_nothing_is_said_to_be_planned(root: paths.Root) -> None:
    kept = Policy("n1", "dry-run")
    kept.take_slo(SLO)
    agent = make(root, kept)
    assert agent.status.planned is None
    agent.enforce_once()
    agent.observe_once()
    assert agent.status.planned is None


def test_a_new_group_is_seen_by_the_round_that_decides_and_else_by_a_look_of_its_own(root: paths.Root) -> None:
    kept = Policy("n1", "dry-run")
    agent = make(root, kept)
    clock = agent._clock
    assert isinstance(clock, ManualClock)
    assert not agent.sees_new_pods()
    (root.directory / "sys/fs/cgroup/cpu/kubepods/besteffort/podu2").mkdir()
    assert not agent.sees_new_pods(), "the last look was in this second"
    agent.enforce_once()
    assert agent.sees_new_pods()
    assert not agent.sees_new_pods(), "known by now"
    (root.directory / "sys/fs/cgroup/cpu/kubepods/besteffort/podu3").mkdir()
    clock.advance(1)
    assert agent.sees_new_pods(), "nobody decided meanwhile"
    last = agent._seen
    clock.advance(1)
    assert not agent.sees_new_pods()
    assert agent._seen is last, "without a new group nothing is looked at again"


def test_a_bad_policy_keeps_limits_in_force(root: paths.Root) -> None:
    kept = Policy("n1", "enforce")
    kept.take_slo(SLO)
    agent = make(root, kept)
    agent.enforce_once()
    kept.take_slo({"kind": "NodeSLO", "spec": "broken"})
    agent.enforce_once()
    assert idle_of(root) == "1"


class Resized(Listed):
    """A source whose pod gets a larger limit with the second list."""

    def refresh(self) -> bool:
        limit = "1" if self._fetched_s is None else "2"
        self._fetched_s = self._clock.monotonic()
        own = Container(name="main", container_id="c1", limits={"cpu": limit})
        self.pods = (
            Pod(
                namespace="ns",
                name="web",
                uid="u3",
                kube_qos="Burstable",
                labels={QOS_LABEL: "LS"},
                phase="Running",
                containers=(own,),
            ),
        )
        return True


def test_a_resize_is_asked_about_before_its_quota_is_taken_back(root: paths.Root) -> None:
    for group in ("kubepods/burstable", "kubepods/burstable/podu3", "kubepods/burstable/podu3/c1"):
        directory = root.directory / "sys/fs/cgroup/cpu" / group
        directory.mkdir()
        for file, content in (("cpu.cfs_quota_us", 100_000), ("cpu.cfs_period_us", 100_000), ("cpu.cfs_burst_us", 0)):
            (directory / file).write_text(f"{content}\n")
    kept = Policy("n1", "enforce")
    kept.take_slo({"kind": "NodeSLO", "spec": {"cpuBurstStrategy": {"policy": "cpuBurstOnly"}}})
    clock = ManualClock()
    source = Resized(Kubelet(Settings()), clock)
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    agent = Agent(root, Sampler(root, clock=clock), source, kept, enforcer, None, clock)
    agent.refresh_pods()
    clock.advance(5)
    for group in ("kubepods/burstable/podu3", "kubepods/burstable/podu3/c1"):
        (root.directory / "sys/fs/cgroup/cpu" / group / "cpu.cfs_quota_us").write_text("200000\n")
    burst = root.directory / "sys/fs/cgroup/cpu/kubepods/burstable/podu3/c1/cpu.cfs_burst_us"
    agent.enforce_once()
    assert burst.read_text().strip() == "0"
    clock.advance(1)
    agent.enforce_once()
    assert burst.read_text().strip() == "200000"


def test_a_suspect_steps_back_on_a_node_and_gets_all_back_with_another_policy(root: paths.Root) -> None:
    group = root.directory / "sys/fs/cgroup/cpu/kubepods/besteffort/podu1"
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    kept = Policy("n1", "enforce")
    kept.take_slo({"kind": "NodeSLO", "spec": {"resourceUsedThresholdWithBE": {"enable": True}}})
    agent = make(root, kept)
    path = "kubepods/besteffort/podu1"
    agent.newest = Sample(
        node="n1",
        time="t",
        cpu=Cpu(online=2),
        cgroups=[
            Cgroup(path=f"{path}/c", class_="offline", name="ns/batch/c", cpu_used_ratio=0.5),
            Cgroup(path=path, class_="offline", name="ns/batch", cpu_used_ratio=0.5),
        ],
    )
    detection = Detection(
        triggered=True,
        victims=[Victim(name="shop", evidence="e")],
        suspects=[Suspect(name="ns/batch/c", confidence=0.9, evidence="e")],
    )
    agent.evaluation = Evaluation(node="n1", time="t", detections={"cpuContention": detection})
    agent.enforce_once()
    assert (group / "cpu.cfs_quota_us").read_text().strip() == "70000"
    assert agent.curing.newest is not None
    assert agent.curing.newest.suspect == path
    kept.take_slo(None)
    agent.enforce_once()
    assert (group / "cpu.cfs_quota_us").read_text().strip() == "-1"


FULL = {"kind": "NodeSLO", "spec": {"resourceUsedThresholdWithBE": {"enable": True, "memoryEvictThresholdPercent": 70}}}
PRESSED = Sample(
    node="n1",
    time="t",
    cpu=Cpu(online=1, used_ratio=0.1),
    memory=Memory(available_ratio=0.1),
    cgroups=[Cgroup(path="kubepods/besteffort/podu1", cpu_used_ratio=0.1, memory_anon_bytes=500_000)],
)


def test_a_full_node_asks_for_one_eviction_once_it_has_lasted(root: paths.Root) -> None:
    kept = Policy("n1", "enforce")
    kept.take_slo(FULL)
    clock = ManualClock()
    evicting = Evicting("n1", clock)
    source = Listed(Kubelet(Settings()), clock)
    enforcer = enforcing.Enforcer(root, executor.Executor(root, evict=evicting, clock=clock), clock=clock)
    agent = Agent(root, Sampler(root, clock=clock), source, kept, enforcer, None, clock, evicting=evicting)
    agent.refresh_pods()
    agent.newest = PRESSED
    agent.enforce_once()
    assert evicting.going == frozenset()
    for _ in range(10):
        clock.advance(1)
        agent.enforce_once()
    assert evicting.going == {"ns/batch"}
    assert agent.status.outcomes["busy"] == 1
    assert agent.status.outcomes["same"] == 0


def test_without_the_option_an_eviction_is_left_out_and_said(root: paths.Root) -> None:
    kept = Policy("n1", "enforce")
    kept.take_slo(FULL)
    agent = make(root, kept)
    agent.newest = PRESSED
    agent._clock.advance(1)  # type: ignore[attr-defined]
    agent.enforce_once()
    agent._clock.advance(2)  # type: ignore[attr-defined]
    agent.enforce_once()
    assert agent.status.outcomes["left_out"] == 1


class WithOnline(Listed):
    """A source with one LSR pod that no scheduler gave CPUs, beside the offline one."""

    def refresh(self) -> bool:
        super().refresh()
        own = Container(name="main", container_id="c9", running=True, requests={"cpu": "1"})
        online = Pod(
            namespace="ns", name="own", uid="u9", kube_qos="Guaranteed", labels={QOS_LABEL: "LSR"}, phase="Running",
            containers=(own,),
        )  # fmt: skip
        self.pods = (*self.pods, online)
        return True


def test_a_pod_gets_whole_cores_where_no_scheduler_gave_any_and_gives_them_back(root: paths.Root) -> None:
    (root.directory / "proc/stat").write_text("cpu 1 1 1 1\ncpu0 1 1 1 1\ncpu1 1 1 1 1\n")
    mounts = root.directory / "proc/self/mountinfo"
    mounts.write_text(mounts.read_text() + "32 23 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n")
    for group in ("", "kubepods", "kubepods/podu9", "kubepods/podu9/c9", "kubepods/besteffort"):
        directory = root.directory / "sys/fs/cgroup/cpuset" / group
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cpuset.cpus").write_text("0-1\n")
    own = root.directory / "sys/fs/cgroup/cpuset/kubepods/podu9/c9/cpuset.cpus"
    kept = Policy("n1", "enforce")
    kept.take_slo(SLO)
    clock = ManualClock()
    source = WithOnline(Kubelet(Settings()), clock)
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    cpus = Assignments(root, Silent(Settings()), clock)
    agent = Agent(root, Sampler(root, clock=clock), source, kept, enforcer, None, clock, cpus=cpus)
    agent.refresh_pods()
    agent.enforce_once()
    assert own.read_text().strip() == "0"
    agent.refresh_pods()
    assert agent.seen is not None
    assert [pod.resource_status.cpuset for pod in agent.seen.pods] == ["", "0"]
    again = Agent(
        root, Sampler(root, clock=clock), source, kept, enforcer, None, clock,
        cpus=Assignments(root, Silent(Settings()), clock),
    )  # fmt: skip
    again.refresh_pods()
    again.enforce_once()
    assert own.read_text().strip() == "0"


class Silent(Kubelet):
    """A kubelet that does not answer."""

    def configuration(self) -> KubeletConfiguration:
        raise KubeletUnreachable("nobody there")


class Serving(Listed):
    """One online pod with half a CPU, in the group podu2."""

    def refresh(self) -> bool:
        super().refresh()
        container = Container(name="c", container_id="c1", running=True, limits={"cpu": "500m"})
        self.pods = (
            Pod(namespace="ns", name="web", uid="u2", kube_qos="Burstable", phase="Running", containers=(container,)),
        )
        return True


def serving(root: paths.Root, kept: Policy, quota: int = 50_000) -> tuple[Agent, pathlib.Path, pathlib.Path]:
    """Return the agent of a node that serves, and the quota files of the pod and of its container."""
    pod = root.directory / "sys/fs/cgroup/cpu/kubepods/burstable/podu2"
    for group in (pod, pod / "c1"):
        group.mkdir(parents=True)
        (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    clock = ManualClock()
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    agent = Agent(root, Sampler(root, clock=clock), Serving(Kubelet(Settings()), clock), kept, enforcer, None, clock)
    agent.refresh_pods()
    return agent, pod / "cpu.cfs_quota_us", pod / "c1/cpu.cfs_quota_us"


def test_limits_are_worth_less_time_on_fast_cpus_until_the_annotation_goes(root: paths.Root) -> None:
    kept = Policy("n1", "enforce")
    agent, pod, container = serving(root, kept)
    seen = []
    for text in ("1.25", "2", None):
        annotations = {} if text is None else {"node.koordinator.sh/cpu-normalization-ratio": text}
        kept.take_node({"metadata": {"name": "n1", "annotations": annotations}})
        agent.enforce_once()
        seen.append(container.read_text().strip())
        assert pod.read_text().strip() == "50000"
    assert seen == ["40000", "25000", "50000"]


@pytest.mark.parametrize(("period", "quota"), [(-1, "90000"), (0, "72000")])
def test_a_quota_burst_ends_when_its_time_is_used_up(root: paths.Root, period: int, quota: str) -> None:
    kept = Policy("n1", "enforce")
    burst = {"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPeriodSeconds": period}
    kept.take_slo({"kind": "NodeSLO", "spec": {"cpuBurstStrategy": burst}})
    agent, pod, container = serving(root, kept, quota=90_000)
    agent.newest = Sample(node="n1", time="t", cpu=Cpu(online=1, used_ratio=0.1))
    agent.enforce_once()
    assert (container.read_text().strip(), pod.read_text().strip()) == (quota, quota)


SUPPRESSING = {"enable": True, "cpuSuppressPolicy": "cfsQuota"}


def test_who_keeps_lifting_the_directorys_quota_finds_each_pod_held(root: paths.Root) -> None:
    offline = root.directory / "sys/fs/cgroup/cpu/kubepods/besteffort"
    for group in (offline, offline / "podu1"):
        (group / "cpu.cfs_quota_us").write_text("-1\n")
    (root.directory / "proc/stat").write_text("cpu 1 1 1 1\n" + "".join(f"cpu{n} 1 1 1 1\n" for n in range(8)))
    kept = Policy("n1", "enforce")
    kept.take_slo({"kind": "NodeSLO", "spec": {"resourceUsedThresholdWithBE": SUPPRESSING}})
    agent = make(root, kept)
    agent.newest = Sample(node="n1", time="t", cpu=Cpu(online=8, used_ratio=0.4), cgroups=[])
    directory, pod = (group / "cpu.cfs_quota_us" for group in (offline, offline / "podu1"))
    agent.enforce_once()
    assert (directory.read_text().strip(), pod.read_text().strip()) == ("200000", "-1")
    for _ in range(rewriter.CONTESTED_REWRITES):
        directory.write_text("-1\n")
        agent.enforce_once()
    (contest,) = agent.status.contests
    assert (contest.found, contest.answer) == ("-1", "each group has a quota of its own instead")
    assert agent.status.left_to_others == {"directory quota"}
    directory.write_text("-1\n")
    agent.enforce_once()
    assert (directory.read_text().strip(), pod.read_text().strip()) == ("-1", "200000")
