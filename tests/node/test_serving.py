"""What the agent serves: its metrics, and whether samples still come."""

import pathlib
from collections.abc import Iterator

import prometheus_client.parser
import pytest
from tests import asking

from cotenant.kernel import enforcing, executor, paths
from cotenant.kernel.sampler import Sampler
from cotenant.model.enforcement import Contest
from cotenant.model.evaluation import Evaluation
from cotenant.model.loss import Loss
from cotenant.model.sample import Cgroup, Psi, Sample
from cotenant.node import metrics
from cotenant.node.agent import HUNG_SECONDS, Agent
from cotenant.node.kubelet import Kubelet, PodSource, Settings
from cotenant.node.policy import Policy
from cotenant.node.shadow import Shadow
from cotenant.units.clock import ManualClock
from cotenant.web import exporter


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def agent(tmp_path: pathlib.Path, clock: ManualClock) -> Agent:
    root, kept = paths.Root(tmp_path), Policy("n1", "observe")
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    source = PodSource(Kubelet(Settings()), clock)
    return Agent(root, Sampler(root, clock=clock), source, kept, enforcer, None, clock)


@pytest.fixture
def collector(agent: Agent, clock: ManualClock) -> metrics.AgentCollector:
    return metrics.AgentCollector(agent, PodSource(Kubelet(Settings()), clock), Policy("n1", "observe"), None)


@pytest.fixture
def port(agent: Agent, collector: metrics.AgentCollector, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(exporter, "LOOK_SECONDS", 0.01)
    server = exporter.serve(
        [collector], "127.0.0.1:0", "--metrics", lambda: None if agent.sampling else "no sample for a minute"
    )
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def get(port: int, path: str) -> tuple[int, str]:
    return asking.get("127.0.0.1", port, path)


def names(text: str) -> set[str]:
    return {family.name for family in prometheus_client.parser.text_string_to_metric_families(text)}


def test_health_ends_when_samples_stop(port: int, clock: ManualClock) -> None:
    assert get(port, "/healthz") == (200, "ok\n")
    clock.advance(HUNG_SECONDS)
    assert get(port, "/healthz") == (503, "no sample for a minute\n")


def test_metrics_are_there_whatever_the_health(port: int, clock: ManualClock) -> None:
    clock.advance(HUNG_SECONDS)
    status, text = get(port, "/metrics")
    assert status == 200
    found = names(text)
    assert "cotenant_node_mode" in found
    assert "process_cpu_seconds" in found


def test_what_the_writer_counts_is_told(port: int, agent: Agent) -> None:
    journal = agent.enforcer._writer.journal
    journal.lost_marks, journal.unreadable_lines = 2, 1
    agent.enforcer._writer.rewrites.total = 4
    agent.enforcer.irreversible_writes = 5
    agent.releasing.failures = 6
    text = get(port, "/metrics")[1]
    for name, value in (
        ("journal_records_lost", 3),
        ("rewrites", 4),
        ("irreversible_writes", 5),
        ("restore_failures", 6),
    ):
        assert f"cotenant_node_{name}_total {value}.0\n" in text


def test_what_ebpf_missed_is_told(port: int, agent: Agent) -> None:
    assert "cotenant_agent_bpf_lost_events" not in get(port, "/metrics")[1]
    agent.bpf_losses = (Loss("block", "unseen", 3),)
    text = get(port, "/metrics")[1]
    assert 'cotenant_agent_bpf_lost_events_total{program="block",reason="unseen"} 3' in text


def test_where_suppression_leaves_files_to_others_is_told(port: int, agent: Agent) -> None:
    agent.status.contests = (Contest(path="cpu/kubepods/besteffort/cpu.max", rewrites=5, found="max", answer="a"),)
    agent.status.left_to_others = frozenset({"directory quota"})
    text = get(port, "/metrics")[1]
    assert "cotenant_files_contested 1.0\n" in text
    series = {line for line in text.splitlines() if line.startswith("cotenant_node_left_to_others{")}
    assert series == {
        'cotenant_node_left_to_others{place="directory quota"} 1.0',
        'cotenant_node_left_to_others{place="group quotas"} 0.0',
        'cotenant_node_left_to_others{place="CPU sets"} 0.0',
    }


def test_what_is_not_known_yet_has_no_series_and_a_sample_has(port: int, agent: Agent, clock: ManualClock) -> None:
    agent.shadow = Shadow(clock)
    before = names(get(port, "/metrics")[1])
    for name in ("node_planned_items", "psi_cpu_some_ratio", "interference_level", "node_shadow_values"):
        assert f"cotenant_{name}" not in before
    agent.newest = Sample(
        node="n1",
        time="2026-11-30T00:00:00Z",
        psi=Psi(cpu_some_ratio=0.25),
        cgroups=[
            Cgroup(path="kubepods/podu1", name="ns/web", class_="online", cpu_used_ratio=0.5),
            Cgroup(path="kubepods/podu1/c", name="ns/web/main", class_="online", cpu_used_ratio=0.5),
            Cgroup(path="system.slice", cpu_used_ratio=0.1),
        ],
    )
    agent.evaluation = Evaluation(node="n1", time="2026-11-30T00:00:00Z", interference_level=0.5, bucket="high")
    text = get(port, "/metrics")[1]
    assert "cotenant_psi_cpu_some_ratio 0.25\n" in text
    assert "cotenant_interference_level 0.5\n" in text
    series = [line for line in text.splitlines() if line.startswith("cotenant_cgroup_cpu_used_ratio{")]
    assert series == ['cotenant_cgroup_cpu_used_ratio{cgroup="kubepods/podu1",class="online",name="ns/web"} 0.5'], (
        "pods"
    )
