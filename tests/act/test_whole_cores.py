"""Whole cores for pods that no scheduler gave any: worked placements, and what holds for every one."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.act.machine import Machine

from cotenant.act import cpu_pool, planning, whole_cores
from cotenant.act.whole_cores import Placement, Wish
from cotenant.model.node import Cpu
from cotenant.model.pod import Pod
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import Snapshot
from cotenant.units import cpulist

Make = Callable[..., Machine]

# Two NUMA nodes of two cores of two threads: siblings 0-4, 1-5 | 2-6, 3-7.
CPUS = [Cpu(id=cpu, core=cpu % 4, socket=cpu % 4 // 2, node=cpu % 4 // 2) for cpu in range(8)]


def pick(
    *wishes: Wish, held: dict[str, frozenset[int]] | None = None, without: set[int] | None = None
) -> dict[str, set[int]]:
    free = [cpu for cpu in CPUS if cpu.id not in (without or set())]
    return {uid: set(cpus) for uid, cpus in whole_cores.allocate(free, wishes, held or {}).items()}


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ([Wish("a", 2)], {"a": {0, 4}}),
        ([Wish("a", 4)], {"a": {0, 1, 4, 5}}),
        ([Wish("a", 2, spread=True)], {"a": {0, 1}}),
        ([Wish("a", 2), Wish("b", 4)], {"a": {0, 4}, "b": {2, 3, 6, 7}}),
        ([Wish("a", 2), Wish("b", 2)], {"a": {0, 4}, "b": {1, 5}}),
        ([Wish("a", 6)], {"a": {0, 1, 2, 4, 5, 6}}),
        ([Wish("a", 7)], {"a": {0, 1, 2, 3, 4, 5, 6}}),
        ([Wish("a", 8)], {}),
        ([Wish("a", 1), Wish("b", 1)], {"a": {0}, "b": {4}}),
        ([Wish("a", 3), Wish("b", 2)], {"a": {0, 1, 4}, "b": {2, 6}}),
        ([Wish("a", 6), Wish("b", 2)], {"a": {0, 1, 2, 4, 5, 6}}),
    ],
)
def test_placements(wishes: list[Wish], expected: dict[str, set[int]]) -> None:
    assert pick(*wishes) == expected


def test_what_is_held_stays_and_comes_first() -> None:
    held = {"b": frozenset({3, 7})}
    assert pick(Wish("a", 4), Wish("b", 2), held=held) == {"a": {0, 1, 4, 5}, "b": {3, 7}}
    assert pick(Wish("a", 6), Wish("b", 2), held=held) == {"b": {3, 7}}


def test_what_is_held_no_longer_fits_when_another_has_it_or_more_is_asked() -> None:
    held = {"a": frozenset({0, 4})}
    assert pick(Wish("a", 2), held=held, without={4}) == {"a": {1, 5}}
    assert pick(Wish("a", 4), held=held) == {"a": {0, 1, 4, 5}}


def test_a_node_of_halves_is_taken_only_when_no_node_has_whole_cores() -> None:
    assert pick(Wish("a", 2), without={4, 5}) == {"a": {2, 6}}
    assert pick(Wish("a", 2), without={4, 5, 6, 7}) == {"a": {0, 1}}
    assert pick(Wish("a", 2, spread=True), without={1, 5}) == {"a": {2, 3}}


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=6),
    st.sets(st.integers(0, 7)),
    st.dictionaries(st.integers(0, 5).map(str), st.frozensets(st.integers(0, 9), min_size=1), max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_nobody_shares_everybody_has_what_was_asked_and_something_is_left(
    asked: list[tuple[int, bool]], without: set[int], held: dict[str, frozenset[int]]
) -> None:
    free = [cpu for cpu in CPUS if cpu.id not in without]
    wishes = [Wish(str(index), count, spread) for index, (count, spread) in enumerate(asked)]
    given_ = whole_cores.allocate(free, wishes, held)
    used = [cpu for cpus in given_.values() for cpu in cpus]
    assert len(used) == len(set(used))
    assert set(used) <= {cpu.id for cpu in free}
    assert not free or len(used) < len(free)
    assert all(len(given_[wish.uid]) == wish.count for wish in wishes if wish.uid in given_)
    # The same question has the same answer, and nobody moves who may stay.
    assert whole_cores.allocate(free, wishes, given_) == given_
    refused = [wish for wish in wishes if wish.uid not in given_]
    assert all(wish.count >= len(free) - len(used) for wish in refused)


LIMITS = {"limits": {"cpu": "2", "memory": "1Gi"}}


def placed(host: Machine, held: Mapping[str, frozenset[int]] | None = None, **seen: Any) -> tuple[Snapshot, Placement]:
    looked = host.look(**seen)
    found = whole_cores.place(looked, held or {})
    return whole_cores.applied(looked, found.given), found


def cpus(node: Machine, group: str) -> str:
    return node.read("cpuset", node.container(group), "cpuset.cpus")


def test_the_cpuset_strategy_writes_what_was_placed_and_others_stay_off(machine: Make) -> None:
    node = machine()
    lsr = node.pod("lsr", "Guaranteed", "LSR", containers=[LIMITS])
    ls, be = node.pod("ls", "Burstable", "LS"), node.pod("be", "BestEffort", "BE")
    seen, found = placed(node)
    assert found.degraded == {}
    node.apply(planning.plan(seen, NodeSlo(), ("cpuset",)))
    own = cpulist.parse(cpus(node, lsr))
    assert own == found.given["uid-lsr"]
    assert len(own) == 2
    assert len({(cpu.socket, cpu.core) for cpu in seen.topology.cpus if cpu.id in own}) == 1
    assert cpulist.parse(cpus(node, ls)) == seen.topology.ids - own
    assert cpus(node, be) == "0-7"
    assert node.quota(lsr) == "-1"


def test_lse_keeps_offline_work_off_and_comes_before_lsr(machine: Make) -> None:
    node = machine()
    node.pod("a", "Guaranteed", "LSR", containers=[LIMITS])
    node.pod("b", "Guaranteed", "LSE", containers=[LIMITS])
    seen, found = placed(node)
    assert found.given["uid-b"] & frozenset({0})
    assert cpu_pool.offline_pool(seen) == seen.topology.ids - found.given["uid-b"]


def test_a_restart_of_ours_finds_what_was_given_where_it_is(machine: Make) -> None:
    node = machine()
    first, second = (node.pod(name, "Guaranteed", "LSR", containers=[LIMITS]) for name in ("a", "b"))
    seen, before = placed(node)
    node.apply(planning.plan(seen, NodeSlo(), ("cpuset",)))
    node.listed = [pod for pod in node.listed if pod["metadata"]["name"] != "a"]
    node.pod("aa", "Guaranteed", "LSR", containers=[LIMITS])
    again = node.look()
    after = whole_cores.place(again, whole_cores.in_force(again))
    assert after.given["uid-b"] == before.given["uid-b"]
    assert first != second


@pytest.mark.parametrize(
    ("resources", "annotations", "reason"),
    [
        ({}, {}, "it asks for no CPU"),
        ({"requests": {"cpu": "1500m"}}, {}, "it asks for 1500m: whole CPUs only"),
        ({"requests": {"cpu": "8"}}, {}, "8 CPUs of its own are not left, with one for everybody else"),
    ],
)
def test_who_cannot_have_cpus_is_served_as_ls_and_told_why(
    machine: Make, resources: dict[str, Any], annotations: dict[str, Any], reason: str
) -> None:
    node = machine()
    node.pod("odd", "Burstable", "LSR", containers=[resources], annotations=annotations)
    assert placed(node)[1] == Placement({}, {"default/odd": reason})


def test_pods_with_cpus_and_pods_that_nobody_labelled_are_left_alone(machine: Make) -> None:
    node = machine()
    status = {"scheduling.koordinator.sh/resource-status": {"cpuset": "0-1"}}
    node.pod("given", "Guaranteed", "LSR", containers=[LIMITS], annotations=status)
    node.pod("plain", "Guaranteed", containers=[LIMITS])
    node.pod("new", "Guaranteed", "LSR", containers=[LIMITS])
    _, found = placed(node)
    assert list(found.given) == ["uid-new"]
    assert not found.given["uid-new"] & frozenset({0, 1})


def test_reserved_cpus_are_not_given_and_under_the_kubelets_policy_nobody_is(machine: Make) -> None:
    node = machine()
    node.pod("lsr", "Guaranteed", "LSR", containers=[{"limits": {"cpu": "6", "memory": "1Gi"}}])
    reserved = {"metadata": {"annotations": {"node.koordinator.sh/reservation": '{"reservedCPUs":"0"}'}}}
    assert 0 not in placed(node, node=reserved)[1].given["uid-lsr"]
    static = {"metadata": {"annotations": {"kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static"}'}}}
    found = placed(node, nrt=static)[1]
    assert found.given == {}
    assert "CPU manager" in found.degraded["default/lsr"]
    pinned = node.look(nrt=static)
    own = msgspec.structs.replace(pinned.topology, kubelet_pods={"uid-lsr": frozenset({1})})
    assert whole_cores.place(msgspec.structs.replace(pinned, topology=own), {}) == Placement()


def test_a_pod_may_ask_for_one_thread_of_each_core(machine: Make) -> None:
    node = machine()
    wish = {"scheduling.koordinator.sh/resource-spec": {"preferredCPUBindPolicy": "SpreadByPCPUs"}}
    node.pod("wide", "Guaranteed", "LSR", containers=[LIMITS], annotations=wish)
    seen, found = placed(node)
    own = found.given["uid-wide"]
    assert len({(cpu.socket, cpu.core) for cpu in seen.topology.cpus if cpu.id in own}) == 2
    assert len({cpu.node for cpu in seen.topology.cpus if cpu.id in own}) == 1
    for text in ("{", "[]", '"x"'):
        odd = Pod(namespace="n", name="x", uid="x", kube_qos="Guaranteed", annotations={next(iter(wish)): text})
        assert not whole_cores.spread(odd)
