from collections.abc import Callable
from typing import Any

import pytest
from tests.act.machine import Machine, steps

Make = Callable[..., Machine]
ON: dict[str, Any] = {"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}}}
GROUP, POLICY = "koordinator.sh/core-sched-group-id", "koordinator.sh/core-sched-policy"


def test_offline_tasks_share_one_cookie_and_online_pods_have_none_unless_they_ask(machine: Make) -> None:
    node = machine()
    for name, kube, label, labels in (
        ("be1", "BestEffort", "BE", {}),
        ("be2", "Burstable", "BE", {}),
        ("ls", "Burstable", "LS", {}),
        ("grouped", "Burstable", "LS", {GROUP: "g"}),
        ("alone", "Burstable", "LS", {POLICY: "exclusive"}),
        ("none", "BestEffort", "BE", {POLICY: "none"}),
        ("system", "Burstable", "SYSTEM", {GROUP: "g"}),
    ):
        group = node.pod(name, kube, label, labels=labels)
        node.kernel.spawn(node.path("cpu", node.container(group), ""))
    found = {item.reason.split()[1]: item.new for item in steps(node.plan(ON), "core_cookie")}
    assert found == {
        "default/be1": "offline",
        "default/be2": "offline",
        "default/grouped": "g-expeller",
        "default/alone": "uid-alone-expeller",
    }


def test_beside_anolis_group_identity_nothing_is_done_and_that_is_said(machine: Make) -> None:
    node = machine("anolis-bvt")
    node.pod("be", "BestEffort", "BE")
    plan = node.plan(ON)
    assert plan.items == ()
    assert any("lock the machine up" in text for text in plan.left_out)


def test_without_sibling_threads_it_is_skipped(machine: Make) -> None:
    node = machine(threads_per_core=1)
    assert ("core_sched", "coreSched: no sibling threads are in use") in node.plan(ON).skipped


@pytest.mark.parametrize("policy", [{}, ON], ids=["policy off", "pod opts out"])
def test_who_should_have_none_loses_what_the_journal_shows(machine: Make, policy: dict[str, Any]) -> None:
    node = machine()
    labels = {POLICY: "none"} if policy else {}
    group = node.pod("be", "BestEffort", "BE", labels=labels)
    task = node.kernel.spawn(node.path("cpu", node.container(group), ""))
    assert steps(node.plan(policy), "core_cookie") == []
    found = steps(node.plan(policy, journal={"proc/4711": ""}), "core_cookie")
    assert [(item.path, item.new) for item in found] == [(f"proc/{task}", "")]
