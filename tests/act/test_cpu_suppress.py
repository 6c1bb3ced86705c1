import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.act.machine import Machine, usage, writes

from cotenant.act import cpu_evict, cpu_pool, cpu_suppress, offline_cpus, offline_quota, planning
from cotenant.model import policy
from cotenant.model.node import Cpu, Usage, Use
from cotenant.units import cpulist
from cotenant.units.limit import Limit

Make = Callable[..., Machine]
GIB = 1 << 30


def slo(**changes: Any) -> dict[str, Any]:
    return {"resourceUsedThresholdWithBE": {"enable": True, **changes}}


QUOTA = slo(cpuSuppressPolicy="cfsQuota")
STATIC = {"metadata": {"annotations": {"kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static"}'}}}


def given_cpus(cpus: str) -> Mapping[str, Any]:
    return {"scheduling.koordinator.sh/resource-status": {"cpuset": cpus}}


@pytest.mark.parametrize(
    ("cpus", "target", "old", "new"), [(104, 500, 50, 2), (8, 2500, 8, 3), (4, 3999, 2, 3), (96, 41001, 40, 42)]
)
def test_cpus_follow_the_target_and_rise_slowly(cpus: int, target: float, old: int, new: int) -> None:
    assert offline_cpus.cpu_count(cpus, target, old) == new


@pytest.mark.parametrize(
    ("cpus", "target", "current", "written"),
    [
        (100, 30000, -1, 3_000_000),
        (100, 30000, 2_950_000, None),
        (100, 10, 3_000_000, 200_000),
        (16, 8000, -1, 800_000),
        (16, 4000, 800_000, 400_000),
    ],
)
def test_quota_follows_the_target_outside_a_dead_band(
    cpus: int, target: float, current: int, written: int | None
) -> None:
    assert offline_quota.quota_usec(cpus, target, Limit(None if current < 0 else current)) == written


@pytest.mark.parametrize(("cpus", "floor"), [(1, 1), (2, 1), (4, 1), (5, 2), (8, 2), (104, 2)])
def test_both_policies_keep_the_same_floor(cpus: int, floor: int) -> None:
    assert offline_quota.floor_cpus(cpus) == floor
    assert offline_cpus.cpu_count(cpus, -50_000, cpus) == floor
    assert offline_quota.quota_usec(cpus, -50_000, Limit(None)) == floor * 100_000


@pytest.mark.parametrize(
    ("cores", "threshold", "online", "system", "reserved", "target"),
    [(100, 65, 30, 5, 0, 30_000), (100, 65, 70, 5, 0, -10_000), (80, 70, 10, 2, 8, 38_000)],
)
def test_target_is_what_online_work_leaves(
    machine: Make, cores: int, threshold: int, online: int, system: int, reserved: int, target: float
) -> None:
    node = machine()
    node.pod("ls", "Burstable", "LS")
    node.pod("be", "BestEffort", "BE")
    resources = {"cpu": str(cores), "memory": "100Gi"}
    described = {"status": {"capacity": resources, "allocatable": {**resources, "cpu": str(cores - reserved)}}}
    used = usage(node=(online + system + 3) * 1000, system=system * 1000, ls=online * 1000, be=3000)
    wanted, _ = policy.decode({"spec": slo(cpuSuppressThresholdPercent=threshold)})
    assert cpu_suppress.target_millicores(node.look(usage=used, node=described), wanted) == target


def test_a_minimum_percentage_holds(machine: Make) -> None:
    node = machine()
    node.pod("ls", "Burstable", "LS")
    wanted, _ = policy.decode({"spec": slo(cpuSuppressMinPercent=25)})
    assert cpu_suppress.target_millicores(node.look(usage=usage(node=8000, ls=8000)), wanted) == 2000


def test_pods_without_metadata_count_as_online_and_offline_pods_do_not(machine: Make) -> None:
    node = machine()
    for name, kube, label in (("be", "Burstable", "BE"), ("plain", "BestEffort", None)):
        node.pod(name, kube, label)
    wanted, _ = policy.decode({"spec": slo(cpuSuppressThresholdPercent=100)})
    snapshot = node.look(usage=usage(node=8000, be=2000, plain=3000, unknown=1000))
    assert cpu_suppress.target_millicores(snapshot, wanted) == 7000


def test_every_offline_group_gets_the_same_cpus(machine: Make) -> None:
    node = machine()
    inside, outside = node.pod("be", "BestEffort", "BE"), node.pod("native", "Burstable", "BE")
    ls = node.pod("ls", "Burstable", "LS")
    seen = {"usage": usage(node=4000, ls=4000)}
    for _ in range(6):
        node.enforce(slo(), **seen)
    held = ["kubepods/besteffort", inside, node.container(inside), outside, node.container(outside)]
    lists = {group: node.read("cpuset", group, "cpuset.cpus") for group in held}
    assert {len(cpulist.parse(text)) for text in lists.values()} == {2}
    assert len(cpulist.parse(node.read("cpuset", ls, "cpuset.cpus"))) == 8
    assert node.plan(slo(), **seen).items == ()


def test_offline_pods_outside_the_directory_share_the_quota_and_the_sum_is_the_target(machine: Make) -> None:
    for flavour in ("mainline-v1", "mainline-v2"):
        node = machine(flavour)
        node.pod("be", "BestEffort", "BE")
        outside = node.pod("native", "Burstable", "BE", containers=[{"requests": {"cpu": "1"}}])
        node.enforce(QUOTA, usage=usage(node=1200, system=1200))
        quotas = [int(node.quota(group)) for group in ("kubepods/besteffort", outside)]
        assert sum(quotas) == 400_000
        assert min(quotas) > 0
        assert node.plan(QUOTA, usage=usage(node=1200, system=1200)).items == ()


def test_a_share_is_no_more_than_the_pods_own_limit(machine: Make) -> None:
    node = machine()
    node.pod("be", "BestEffort", "BE")
    outside = node.pod("native", "Burstable", "BE", containers=[{"limits": {"cpu": "500m"}}])
    node.enforce(QUOTA, usage=usage(node=1200, system=1200))
    assert (node.quota(outside), node.quota("kubepods/besteffort")) == ("50000", "350000")


@given(
    total=st.integers(0, 10_000_000),
    parts=st.lists(st.tuples(st.integers(0, 9000), st.none() | st.integers(1000, 900_000)), min_size=1, max_size=8),
)
@example(total=3030, parts=[(0, None), (1, 1018), (1, 1001)])
@settings(max_examples=80, deadline=None)
def test_shares_sum_to_the_target_and_none_is_refused(total: int, parts: list[tuple[int, int | None]]) -> None:
    weights, caps = [part[0] for part in parts], [part[1] for part in parts]
    shares = offline_quota.split(total, weights, caps)
    assert all(share >= 1000 for share in shares)
    assert all(cap is None or share <= cap for share, cap in zip(shares, caps, strict=True))
    most = sum(caps) if all(caps) else math.inf
    assert sum(shares) == max(min(total, most), 1000 * len(parts))


def test_cpus_wanted_beyond_those_available_gives_all_available(machine: Make) -> None:
    node = machine()
    node.pod("lse", "Guaranteed", "LSE", annotations=given_cpus("0-5"))
    be = node.pod("be", "BestEffort", "BE")
    node.enforce(slo(), usage=usage(node=100))
    assert node.read("cpuset", be, "cpuset.cpus") == "6-7"


def test_no_cpu_at_all_for_offline_work_is_said_and_nothing_crashes(machine: Make) -> None:
    node = machine()
    node.pod("lse", "Guaranteed", "LSE", annotations=given_cpus("0-7"))
    node.pod("be", "BestEffort", "BE")
    plan = node.plan(slo(), usage=usage(node=100))
    assert not writes(plan, "cpuset.cpus")
    assert any("reserved or exclusive" in text for text in plan.left_out)


def test_reserved_system_and_kubelet_cpus_are_never_given_away(machine: Make) -> None:
    node = machine()
    be = node.pod("be", "BestEffort", "BE")
    pinned = node.pod("pinned", "Guaranteed", containers=[{"limits": {"cpu": "2", "memory": "1Gi"}}])
    node.write("cpuset", node.container(pinned), "cpuset.cpus", "4-5")
    annotations = {
        "node.koordinator.sh/reservation": '{"reservedCPUs":"0"}',
        "node.koordinator.sh/system-qos-resource": '{"cpuset":"1"}',
    }
    plan = node.enforce(slo(), usage=usage(node=100), node={"metadata": {"annotations": annotations}}, nrt=STATIC)
    assert node.read("cpuset", node.container(be), "cpuset.cpus") == "2-3,6-7"
    assert node.container(pinned) not in " ".join(writes(plan, "cpuset.cpus"))


def test_lsr_cpus_are_shared_in_proportion(machine: Make) -> None:
    node = machine()
    node.pod("lsr", "Guaranteed", "LSR", annotations=given_cpus("0-3"))
    be = node.pod("be", "BestEffort", "BE")
    node.enforce(slo(), usage=usage(node=1200, system=1200))
    given = cpulist.parse(node.read("cpuset", be, "cpuset.cpus"))
    assert len(given) == 4
    assert len(given & {0, 1, 2, 3}) == 2


def test_the_static_policy_narrows_containers_only(machine: Make) -> None:
    node = machine()
    be = node.pod("be", "BestEffort", "BE")
    node.enforce(slo(), usage=usage(node=4000, system=4000), nrt=STATIC)
    lists = [node.read("cpuset", group, "cpuset.cpus") for group in ("kubepods/besteffort", be, node.container(be))]
    assert lists[:2] == ["0-7", "0-7"]
    assert len(cpulist.parse(lists[2])) == 2


def test_changing_to_quota_gives_the_cpus_back(machine: Make) -> None:
    node = machine()
    be = node.pod("be", "BestEffort", "BE")
    node.enforce(slo(), usage=usage(node=4000, system=4000))
    node.enforce(QUOTA, usage=usage(node=4000, system=4000))
    assert {node.read("cpuset", group, "cpuset.cpus") for group in ("kubepods/besteffort", be)} == {"0-7"}
    assert int(node.quota("kubepods/besteffort")) == 200_000
    node.enforce(slo(), usage=usage(node=4000, system=4000))
    assert node.quota("kubepods/besteffort") == "-1"


def test_switched_off_only_what_we_wrote_is_put_back(machine: Make) -> None:
    node = machine()
    be = node.pod("be", "BestEffort", "BE")
    for group in (node.container(be), be, "kubepods/besteffort"):
        node.write("cpuset", group, "cpuset.cpus", "0-1")
    off = {"resourceUsedThresholdWithBE": {"enable": False}}
    assert node.plan(off).items == ()
    groups = (node.container(be), be, "kubepods/besteffort")
    journal = {node.path("cpuset", group, "cpuset.cpus"): "0-7" for group in groups}
    node.enforce(off, journal=journal)
    assert node.read("cpuset", node.container(be), "cpuset.cpus") == "0-7"


def test_without_usage_it_is_skipped_with_a_reason(machine: Make) -> None:
    node = machine()
    node.pod("be", "BestEffort", "BE")
    plan = node.plan(slo())
    assert plan.items == ()
    assert ("cpu_suppress", "the node's CPU usage is not known (give --usage)") in plan.skipped


def test_usage_that_hovers_at_a_boundary_does_not_make_the_cpus_flap() -> None:
    count, seen = 8, []
    for step in range(40):
        count = offline_cpus.cpu_count(8, 4000 + (100 if step % 2 else -100), count)
        seen.append(count)
    assert set(seen[10:]) == {4}


@pytest.mark.parametrize(
    ("flavour", "groups_inside"), [("mainline-v1", ("x",)), ("mainline-v1", ()), ("mainline-v2", ())]
)
def test_offline_containers_stay_on_the_numa_nodes_that_the_scheduler_gave_their_pod(
    machine: Make, flavour: str, groups_inside: tuple[str, ...]
) -> None:
    node = machine(flavour)
    detail = [{"id": cpu, "core": cpu // 2, "socket": cpu // 4, "node": cpu // 4} for cpu in range(8)]
    annotations = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
    seen = {"usage": usage(node=2000, system=2000), "nrt": {"metadata": {"annotations": annotations}}}
    bound = {"scheduling.koordinator.sh/resource-status": {"numaNodeResources": [{"node": 1}]}}
    here, free = node.pod("here", label="BE", annotations=bound), node.pod("free", label="BE")
    for name in groups_inside:
        node.group(f"{node.container(here)}/{name}")
    first = set(range(4))

    def listed(group: str) -> frozenset[int]:
        return cpulist.parse(node.read("cpuset", group, "cpuset.cpus"))

    for wanted, count, limit in ((slo(), 4, 4000), (QUOTA, 8, 3200)):  # 5200 - 2000 millicores are left
        node.enforce(wanted, **seen)
        everywhere = listed("kubepods/besteffort")
        assert (len(everywhere), listed(node.container(free))) == (count, everywhere)
        assert listed(node.container(here)) == everywhere - first != frozenset()
        assert all(listed(f"{node.container(here)}/{name}") <= everywhere - first for name in groups_inside)
        assert node.plan(wanted, **seen).items == ()
        assert cpu_evict.real_limit(node.look(**seen)) == limit  # a bound container says nothing of the others


@pytest.mark.parametrize("wanted", [slo(), QUOTA], ids=["cpuset", "cfsQuota"])
def test_where_no_cpu_is_listed_the_nodes_capacity_says_how_many_there_are(
    machine: Make, wanted: dict[str, Any]
) -> None:
    node = machine("mainline-v2")
    node.pod("a", label="BE")
    capacity = {"status": {"capacity": {"cpu": "8", "memory": "32Gi"}}}

    def held(used: float) -> tuple[int, int]:
        seen = node.look(node=capacity, usage=usage(node=used, system=used))
        unlisted = msgspec.structs.replace(seen, topology=msgspec.structs.replace(seen.topology, cpus=()))
        decoded = policy.decode({"spec": wanted})[0]
        node.apply(planning.plan(unlisted, decoded))
        return int(node.quota("kubepods/besteffort")), int(cpu_evict.real_limit(unlisted))

    assert held(9000)[0] == 200_000, "the floor of eight CPUs"
    assert held(1000)[0] == 280_000, "a tenth of them at a time"
    assert held(1000) == (360_000, 3600)


def test_a_first_quota_is_not_held_back_by_the_step_limit(machine: Make) -> None:
    node = machine()
    node.pod("be", "BestEffort", "BE")
    node.enforce(QUOTA, usage=usage(node=200, system=200))
    assert node.quota("kubepods/besteffort") == "500000"


def test_a_pod_list_without_pods_does_not_keep_an_old_limit(machine: Make) -> None:
    node = machine()
    node.write("cpuset", "kubepods/besteffort", "cpuset.cpus", "0")
    plan = node.plan(slo(), usage=usage(node=100))
    assert writes(plan, "cpuset.cpus")


def place(cpu: int) -> Cpu:
    """Two sockets, two threads a core: siblings are n and n + 8."""
    return Cpu(cpu, core=cpu % 4, socket=(cpu % 8) // 4, node=(cpu % 8) // 4)


def test_cpus_are_picked_by_whole_cores_in_turn_from_each_node() -> None:
    cpus = [place(cpu) for cpu in range(16)]
    assert sorted(cpu_pool.pick(cpus, 4)) == [0, 4, 8, 12]
    assert {0, 8} < set(cpu_pool.pick(cpus, 3))
    assert sorted(cpu_pool.pick(cpus[1:], 2)) == [4, 12]  # the fuller node first


@given(st.sets(st.integers(0, 15)), st.integers(0, 20))
@settings(max_examples=80, deadline=None)
def test_a_pick_is_as_large_as_it_can_be_and_splits_few_cores(ids: set[int], count: int) -> None:
    cpus = [place(cpu) for cpu in ids]
    picked = cpu_pool.pick(cpus, count)
    assert len(picked) == len(set(picked)) == min(count, len(ids))
    assert set(picked) <= ids
    chosen = set(picked)
    split = [c for c in chosen if (c + 8) % 16 in ids - chosen]
    assert len(split) <= 1


def test_what_the_fast_path_writes_is_lower_than_what_is_there_and_never_below_the_floor(machine: Make) -> None:
    node = machine()  # 8 CPUs
    node.pod("be", "BestEffort", "BE")
    directory = "kubepods/besteffort"
    slo = policy.NodeSlo(threshold=policy.ThresholdStrategy(enable=True, cpu_suppress_policy="cfsQuota"))

    def ready(used: float) -> list[str | None]:
        usage = Usage(pods={"default/be": Use(cpu_millicores=used)})
        return [item.new for item in cpu_suppress.tightened(node.look(usage=usage), slo)]

    assert ready(6000) == ["420000"]
    assert ready(1000) == ["200000"]  # the floor: two CPUs
    node.write("cpu", directory, "cpu.cfs_quota_us", "300000")
    assert ready(6000) == []
    assert cpu_suppress.tightened(node.look(), slo) == ()
    assert cpu_suppress.tightened(node.look(usage=Usage()), policy.NodeSlo()) == ()


@pytest.mark.parametrize("by", ["cfsQuota", "cpuset"])
def test_the_reason_says_what_offline_work_gets_not_what_is_left_to_it(machine: Make, by: str) -> None:
    """Online work that takes everything leaves nothing; offline work keeps its floor all the same."""
    node = machine()
    node.pod("be", "BestEffort", "BE")
    node.pod("ls", "Burstable", "LS")
    plan = node.plan(slo(cpuSuppressPolicy=by), usage=usage(node=8000, ls=8000))
    reasons = {item.reason for item in plan.items if item.strategy == "cpu_suppress"}
    assert any(
        "2000 millicores together" in reason or "2 of 8 CPUs: 0 millicores are left" in reason for reason in reasons
    )
    assert not any("may use 0" in reason for reason in reasons)
