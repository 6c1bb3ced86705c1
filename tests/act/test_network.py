from collections.abc import Callable

import msgspec
from tests.act.machine import Machine

from cotenant.act import network
from cotenant.act.draft import Draft
from cotenant.model import policy
from cotenant.model.snapshot import HeldFiles, Hierarchy

Make = Callable[..., Machine]
ON = {"resourceQOSStrategy": {"beClass": {"networkQOS": {"enable": True}}}}


def test_where_the_kernel_has_none_that_is_said(machine: Make) -> None:
    node = machine()
    node.pod("be", "BestEffort", "BE")
    plan = node.plan(ON)
    assert plan.items == ()
    assert any(name == "network" and "unsupported" in text for name, text in plan.skipped)
    assert not any(name == "network" for name, _ in node.plan({}).skipped)


def test_offline_pods_traffic_is_marked_on_openeuler(machine: Make) -> None:
    node = machine("openeuler")
    be, ls = node.pod("be", "BestEffort", "BE"), node.pod("ls", "Burstable", "LS")
    top = "sys/fs/cgroup/net_cls"
    files = {f"{top}/{group}/net_cls.classid": "0" for group in (be, node.container(be), ls)}
    snapshot = node.look()
    snapshot = msgspec.structs.replace(
        snapshot,
        files=HeldFiles({**files, "proc/qos/net_qos_bandwidth": ""}),
        hierarchies={**snapshot.hierarchies, "net_cls": Hierarchy(top, 1)},
    )
    draft = Draft(snapshot, "network")
    network.decide(draft, policy.decode({"spec": ON})[0])
    expected = [f"{top}/{group}/net_cls.classid" for group in (be, node.container(be))]
    assert [(target.path, target.value) for target in draft.targets] == [(path, "4294967295") for path in expected]
    off = Draft(msgspec.structs.replace(snapshot, journal={expected[0]: "0"}), "network")
    network.decide(off, policy.decode({"spec": {}})[0])
    assert [(target.path, target.value) for target in off.releases] == [(expected[0], "0")]
