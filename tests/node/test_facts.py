import asyncio
import pathlib

import msgspec
import pytest
from tests.waiting import PATIENCE_SECONDS, until

from cotenant.kernel import enforcing, executor, paths
from cotenant.kernel.sampler import Sampler
from cotenant.node import facts
from cotenant.node.agent import Agent
from cotenant.node.kubelet import Kubelet, PodSource, Settings
from cotenant.node.policy import Policy
from cotenant.units.clock import ManualClock


@pytest.fixture
def parts(tmp_path: pathlib.Path) -> facts.Parts:
    (tmp_path / "sys/fs/cgroup/cpu").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu/cpu.qos_level").write_text("0\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    (tmp_path / "proc/stat").write_text("cpu 1 1 1 1\ncpu0 1 1 1 1\n")
    root, clock = paths.Root(tmp_path), ManualClock()
    source, kept = PodSource(Kubelet(Settings()), clock), Policy("n1", "observe")
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    agent = Agent(root, Sampler(root, clock=clock), source, kept, enforcer, None, clock)
    return facts.Parts(root, agent, source, kept, enforcer, clock)


def test_the_facts_follow_mode_policy_and_check(parts: facts.Parts) -> None:
    parts.policy.take_node({"metadata": {}})
    telling = facts.Telling(parts)
    said = telling.current()
    assert said.mode == "observe"
    assert said.problems == []
    assert said.check is not None
    assert "psi" in said.check.missing
    assert said.counts is not None
    started = said.counts.started_at
    parts.policy.take_node({"metadata": {"labels": {"cotenant.io/mode": "enforce"}}})
    parts.policy.take_slo({"metadata": {"annotations": {"cotenant.io/slo-revision": "7"}}, "spec": {}})
    parts.agent.status.failing_rounds = 3
    parts.enforcer.irreversible_writes = 2
    parts.clock.advance(5)  # type: ignore[attr-defined]
    said = telling.current()
    assert (said.mode, said.slo_revision) == ("enforce", "7")
    assert said.problems == ["rounds of enforcement fail"]
    assert said.counts is not None
    assert (said.counts.started_at, said.counts.irreversible_writes) == (started, 2)


def test_a_label_that_says_nothing_is_a_problem_and_no_change_of_mode(parts: facts.Parts) -> None:
    parts.policy.take_node({"metadata": {"labels": {"cotenant.io/mode": "enforec"}}})
    assert not parts.policy.mode_known
    assert facts.Telling(parts).current().problems == [
        "mode: label cotenant.io/mode=enforec: write observe, dry-run, enforce"
    ]


def test_another_agent_is_named_unless_it_is_known_to_be_there(parts: facts.Parts) -> None:
    (parts.root.proc / "77").mkdir()
    (parts.root.proc / "77/comm").write_text("koordlet\n")
    (parts.root.proc / "77/cmdline").write_bytes(b"/koordlet\0")
    check = facts.Telling(parts).current().check
    assert check is not None
    assert check.conflicts == ["koordlet"]
    check = facts.Telling(parts, beside_others=True).current().check
    assert check is not None
    assert check.conflicts == []


async def test_the_first_facts_wait_for_the_node_object(parts: facts.Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MODE_SECONDS", 2 * PATIENCE_SECONDS)
    monkeypatch.setattr(facts, "LOOK_SECONDS", 0.01)
    told: list[bytes] = []
    telling = asyncio.create_task(facts.Telling(parts).run(told.append))
    await asyncio.sleep(0.05)
    assert told == []
    parts.policy.take_node({"metadata": {"labels": {"cotenant.io/mode": "enforce"}}})
    await until(lambda: told)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    assert [msgspec.json.decode(text)["mode"] for text in told] == ["enforce"]


def test_a_mode_that_nobody_has_said_is_unknown(parts: facts.Parts) -> None:
    assert facts.Telling(parts).current().mode is None
