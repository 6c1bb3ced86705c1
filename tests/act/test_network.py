import pathlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.act.machine import Machine

from cotenant.act import network, planning
from cotenant.act.draft import Draft, Plan
from cotenant.kernel import executor, paths, undo
from cotenant.model import policy
from cotenant.model.snapshot import HeldFiles, Hierarchy
from cotenant.units.quantity import BadQuantity

Make = Callable[..., Machine]
TOP = "sys/fs/cgroup/net_cls"


def slo(total: int | str | None = None, **network_qos: Any) -> dict[str, Any]:
    asked = {"enable": True, **network_qos}
    system = {} if total is None else {"systemStrategy": {"totalNetworkBandwidth": total}}
    return {"resourceQOSStrategy": {"beClass": {"networkQOS": asked}}, **system}


def test_where_the_kernel_has_none_that_is_said(machine: Make) -> None:
    node = machine()
    node.pod("be", "BestEffort", "BE")
    plan = node.plan(slo(egressLimit="200M"))
    assert plan.items == ()
    assert any(name == "network" and "unsupported" in text for name, text in plan.skipped)
    assert not any(name == "network" for name, _ in node.plan({}).skipped)


def bandwidth_of(request: Any, limit: Any, total: Any) -> tuple[int, int, int | None] | None:
    found = network.bandwidth(request, limit, total)
    return None if found is None else (found.low_mib, found.high_mib, found.waterline_mib)


@pytest.mark.parametrize(
    ("request_", "limit", "total", "bandwidth"),
    [
        (None, None, "10G", None),
        ("10M", "200M", "600M", (1, 23, 47)),  # 200 Mbit/s are 23.8 MiB/s; 400 Mbit/s are left
        ("10M", "200M", None, (1, 23, None)),
        ("10M", "200M", "0", (1, 23, None)),  # what a manager writes where nobody says
        (10, 40, "10G", (119, 476, 715)),
        (10, None, "10G", (119, 1192, 20)),  # up to the whole link, while there is next to no online traffic
        (None, 40, "10G", (1, 476, 715)),
        (0, "1G", None, (1, 119, None)),
        ("0", 100, "10G", (1, 1192, 20)),
        ("1G", "1G", "10G", (118, 119, 1072)),  # bwmcli wants the lower below the upper
        (0, 1, "100M", (1, 2, 20)),  # and both in whole MiB
        (100, 100, "1P", (9999 * 1024 - 1, 9999 * 1024, 20)),
    ],
)
def test_worked_values(
    request_: int | str | None,
    limit: int | str | None,
    total: str | None,
    bandwidth: tuple[int, int, int | None] | None,
) -> None:
    assert bandwidth_of(request_, limit, total) == bandwidth


@pytest.mark.parametrize(
    ("request_", "limit", "total", "error"),
    [
        (10, 40, None, "set spec.systemStrategy.totalNetworkBandwidth"),
        (None, 40, "0", "set spec.systemStrategy.totalNetworkBandwidth"),
        (10, None, None, "set spec.systemStrategy.totalNetworkBandwidth"),
        ("200M", "10M", None, "more than egressLimit"),
        (0, 101, "1G", "0..100"),
        (-1, 10, "1G", "0..100"),
        (0, "30%", "1G", "quantity"),
        (0, 10, "1 GBit", "quantity"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(request_: Any, limit: Any, total: Any, error: str) -> None:
    with pytest.raises((ValueError, BadQuantity), match=error):
        network.bandwidth(request_, limit, total)


@settings(max_examples=60)
@given(
    link=st.integers(1, 10**14),
    shares=st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted),
    other=st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted),
)
def test_bwmcli_takes_all_of_it_and_more_limit_is_never_less(link: int, shares: list[int], other: list[int]) -> None:
    found, more = (
        network.bandwidth(low, high, link)
        for low, high in (shares, [max(shares[0], other[0]), max(shares[1], other[1])])
    )
    for each in (found, more):
        assert each is not None
        assert each.waterline_mib is not None
        assert network.BANDWIDTH_MIB[0] <= each.low_mib < each.high_mib <= network.BANDWIDTH_MIB[1]
        assert network.WATERLINE_MIB[0] <= each.waterline_mib <= network.WATERLINE_MIB[1]
    assert found is not None
    assert more is not None
    assert found.low_mib <= more.low_mib
    assert found.high_mib <= more.high_mib
    assert (found.waterline_mib or 0) >= (more.waterline_mib or 0)


class OpenEuler:
    """A node with oncn-bwm: its files on a plain tree, and a pod of each class."""

    def __init__(self, node: Machine, directory: pathlib.Path, **annotations: str) -> None:
        self.node = node
        be = node.pod("be", "BestEffort", "BE", annotations=annotations)
        ls = node.pod("ls", "Burstable", "LS")
        self.offline = [f"{TOP}/{group}/net_cls.classid" for group in (be, node.container(be))]
        self.held = {**dict.fromkeys([*self.offline, f"{TOP}/{ls}/net_cls.classid"], "0")}
        self.held |= {"proc/qos/net_qos_bandwidth": "", "proc/qos/net_qos_waterline": ""}
        self.root = paths.Root(directory)
        for path, text in self.held.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(f"{text}\n")
        self.writer = executor.Executor(self.root)

    def read(self, path: str) -> str:
        return (self.root.directory / path).read_text().strip()

    def plan(self, spec: dict[str, Any]) -> Plan:
        seen = self.node.look(journal=self.writer.journalled())
        seen = msgspec.structs.replace(
            seen,
            files=HeldFiles({path: self.read(path) for path in self.held}),
            hierarchies={**seen.hierarchies, "net_cls": Hierarchy(TOP, 1)},
        )
        decoded, complaints = policy.decode({"spec": spec})
        assert complaints == ()
        return planning.plan(seen, decoded, ("network",))

    def enforce(self, spec: dict[str, Any]) -> Plan:
        plan = self.plan(spec)
        assert {outcome.state for outcome in self.writer.apply(plan.items)} <= {"written"}
        return plan


@pytest.fixture
def node(machine: Make, tmp_path: pathlib.Path) -> OpenEuler:
    return OpenEuler(machine("openeuler"), tmp_path / "tree")


def test_offline_traffic_is_marked_and_bounded(node: OpenEuler) -> None:
    asked = slo("10G", egressRequest=10, egressLimit=40)
    node.enforce(asked)
    assert [node.read(path) for path in node.offline] == ["4294967295"] * 2
    assert node.read("proc/qos/net_qos_bandwidth") == "119mb,476mb"
    assert node.read("proc/qos/net_qos_waterline") == "715mb"
    online = next(path for path in node.held if path.endswith("classid") and path not in node.offline)
    assert node.read(online) == "0"
    assert node.plan(asked).items == ()
    node.enforce(slo("10G", egressRequest=20, egressLimit=40))
    assert node.read("proc/qos/net_qos_bandwidth") == "238mb,476mb"


def test_without_bandwidth_in_the_policy_the_nodes_own_stays(node: OpenEuler) -> None:
    plan = node.enforce(slo())
    assert {item.path for item in plan.items} == set(node.offline)
    plan = node.plan(slo(egressLimit=40))
    assert plan.items == ()
    assert any("the node keeps its bandwidth" in text for text in plan.notices)


def test_what_the_file_showed_comes_back_and_what_it_did_not_is_named(node: OpenEuler) -> None:
    """bwmcli's own settings never show in the module's files."""
    before = node.root.directory / "proc/qos/net_qos_bandwidth"
    before.write_text("30mb,100mb\n")
    plan = node.enforce(slo("10G", egressLimit=40))
    sure = {item.path: item.irreversible for item in plan.items}
    assert (sure["proc/qos/net_qos_bandwidth"], sure["proc/qos/net_qos_waterline"]) == (False, True)
    node.enforce({})
    assert node.read("proc/qos/net_qos_bandwidth") == "30mb,100mb"
    assert [node.read(path) for path in node.offline] == ["0"] * 2
    assert node.read("proc/qos/net_qos_waterline") == "715mb"
    node.enforce(slo("10G", egressLimit=40))
    restored = undo.restore(node.writer)
    assert node.read("proc/qos/net_qos_bandwidth") == "30mb,100mb"
    (left,) = restored.irreversible
    assert "bwmcli -s waterline" in left.remedy
    assert restored.pods_to_recreate == []


def test_a_pods_own_bandwidth_is_said_to_be_the_plug_ins(machine: Make, tmp_path: pathlib.Path) -> None:
    annotations = {network.POD_ANNOTATION: '{"EgressLimit": "20M"}'}
    node = OpenEuler(machine("openeuler"), tmp_path / "tree", **annotations)
    (notice,) = node.plan(slo()).notices
    assert "default/be" in notice
    assert node.plan({}).notices == ()


def test_what_is_wrong_is_said_once_and_marks_all_the_same(machine: Make) -> None:
    node = machine("openeuler")
    seen = msgspec.structs.replace(node.look(), files=HeldFiles({"proc/qos/net_qos_bandwidth": ""}))
    seen = msgspec.structs.replace(seen, hierarchies={**seen.hierarchies, "net_cls": Hierarchy(TOP, 1)})
    draft = Draft(seen, "network")
    network.decide(draft, policy.decode({"spec": slo(egressRequest="2G", egressLimit="1G")})[0])
    assert draft.notices == [
        "spec.resourceQOSStrategy.beClass.networkQOS: egressRequest 2G is more than egressLimit 1G; "
        "the node keeps its bandwidth"
    ]
