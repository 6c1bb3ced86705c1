from collections.abc import Callable
from typing import Any

import pytest
from tests.act.machine import Machine, usage, use, writes

from cotenant.act import cpu_burst
from cotenant.act.draft import Draft, merge
from cotenant.units.limit import Limit

Make = Callable[..., Machine]


def slo(policy: str = "auto", **changes: Any) -> dict[str, Any]:
    return {"cpuBurstStrategy": {"policy": policy, **changes}}


@pytest.mark.parametrize(
    ("milli", "percent", "burst"),
    [
        (1000, 1000, 1_000_000),
        (500, 1000, 500_000),
        (2000, 100, 200_000),
        (4000, 1000, 4_000_000),
        (100, 10_000, 1_000_000),
    ],
)
def test_burst_by_limit(milli: int, percent: int, burst: int) -> None:
    assert cpu_burst.burst_usec(milli * 100, percent) == burst


@pytest.mark.parametrize(
    ("current", "direction", "target"),
    [(100_000, "up", 120_000), (300_000, "up", 300_000), (110_000, "down", 100_000), (None, "up", 100_000)],
)
def test_quota_steps_stay_between_limit_and_percentage(
    current: int | None, direction: cpu_burst.Direction, target: int
) -> None:
    assert cpu_burst.quota_usec(100_000, Limit(current), direction, 300) == target


def limited(
    node: Machine, name: str, cpu: str = "1", quota: int = 100_000, label: str | None = "LS", **more: Any
) -> str:
    group = node.pod(name, "Burstable", label, containers=[{"limits": {"cpu": cpu}}], **more)
    for place in (group, node.container(group)):
        node.write("cpu", place, "cpu.max" if node.v2 else "cpu.cfs_quota_us", str(quota))
    return group


@pytest.mark.parametrize(
    ("flavour", "burst"),
    [("anolis-bvt", "1000000"), ("mainline-v2", "100000"), ("mainline-v1", "100000"), ("openeuler", "100000")],
)
def test_burst_is_what_the_kernel_takes(machine: Make, flavour: str, burst: str) -> None:
    node = machine(flavour)
    group = limited(node, "ls")
    file = "cpu.max.burst" if node.v2 else "cpu.cfs_burst_us"
    plan = node.plan(slo("cpuBurstOnly"))
    assert set(writes(plan, file).values()) == {burst}
    if flavour != "anolis-bvt":
        node.apply(plan)
        assert node.read("cpu", group, file) == burst
        assert node.plan(slo("cpuBurstOnly")).items == ()


def test_a_throttled_container_grows_while_the_pool_has_room(machine: Make) -> None:
    node = machine()
    group = limited(node, "ls")
    node.enforce(slo("cfsQuotaBurstOnly"), usage=usage(node=500, ls=use(500, throttled=0.2)))
    assert (node.quota(node.container(group)), node.quota(group)) == ("120000", "120000")
    assert node.plan(slo("cfsQuotaBurstOnly"), usage=usage(node=500, ls=use(500, throttled=0.0))).items == ()


def test_near_the_threshold_nobody_grows_and_above_it_the_most_enlarged_shrinks_first(machine: Make) -> None:
    node = machine()
    small, large = limited(node, "small", quota=120_000), limited(node, "large", quota=300_000)
    cooling = usage(node=3700, small=use(800, throttled=0.5), large=use(2900, throttled=0.5))
    assert node.plan(slo("cfsQuotaBurstOnly"), usage=cooling).items == ()
    over = usage(node=4100, small=use(800, throttled=0.5), large=use(3300, throttled=0.5))
    node.enforce(slo("cfsQuotaBurstOnly"), usage=over)
    assert (node.quota(node.container(small)), node.quota(node.container(large))) == ("120000", "240000")


@pytest.mark.parametrize("pod_quota", [100_000, 80_000])
def test_a_container_below_its_limit_gets_it_back(machine: Make, pod_quota: int) -> None:
    node = machine()
    group = limited(node, "ls", quota=80_000)
    node.write("cpu", group, "cpu.max" if node.v2 else "cpu.cfs_quota_us", str(pod_quota))
    for busy in (500, 3900):
        node.enforce(slo("cfsQuotaBurstOnly"), usage=usage(node=busy, ls=use(500)))
        assert (node.quota(node.container(group)), node.quota(group)) == ("100000", "100000")


def test_many_throttled_pods_at_once_settle_and_do_not_swing(machine: Make) -> None:
    node = machine()
    groups = [limited(node, f"p{n}") for n in range(6)]
    seen = []
    for _ in range(25):
        quotas = [int(node.quota(node.container(group))) for group in groups]
        # Each pod uses whatever it gets, up to 1.5 CPUs, and is throttled until then.
        pods = {f"p{n}": use(min(q / 100, 1500), throttled=float(q < 150_000)) for n, q in enumerate(quotas)}
        total = sum(item.cpu_millicores or 0 for item in pods.values())
        node.enforce(slo("cfsQuotaBurstOnly", sharePoolThresholdPercent=90), usage=usage(node=total, **pods))
        seen.append(sum(quotas))
    assert seen[-1] > seen[0]
    assert len(set(seen[-8:])) == 1


def test_a_blind_node_is_not_an_idle_one(machine: Make) -> None:
    node = machine()
    limited(node, "ls")
    plan = node.plan(slo("cfsQuotaBurstOnly"))
    assert plan.items == ()
    assert any(name == "cpu_burst" for name, _ in plan.skipped)


def test_a_pods_annotation_overrides_field_by_field(machine: Make) -> None:
    node = machine("mainline-v2")
    limited(node, "ls", annotations={"koordinator.sh/cpuBurst": {"policy": "cpuBurstOnly", "cpuBurstPercent": 50}})
    assert set(writes(node.plan({}), "cpu.max.burst").values()) == {"50000"}


@pytest.mark.parametrize("label", ["LSR", "LSE", "BE"])
def test_other_classes_do_not_burst(machine: Make, label: str) -> None:
    node = machine("mainline-v2")
    limited(node, "p", label=label)
    assert node.plan(slo()).items == ()


def test_switched_off_only_what_we_wrote_is_put_back(machine: Make) -> None:
    node = machine()
    group = limited(node, "ls", quota=240_000)
    assert node.plan(slo("none")).items == ()
    journal = {node.path("cpu", place, "cpu.cfs_quota_us"): "100000" for place in (group, node.container(group))}
    node.enforce(slo("none"), journal=journal)
    assert (node.quota(group), node.quota(node.container(group))) == ("100000", "100000")


@pytest.mark.parametrize("flavour", ["mainline-v1", "mainline-v2"])
def test_bursts_make_room_for_a_smaller_quota(machine: Make, flavour: str) -> None:
    node = machine(flavour)
    group, other = limited(node, "ls"), limited(node, "other")
    node.enforce(slo("cpuBurstOnly"))
    container = node.container(group)
    file = "cpu.max.burst" if node.v2 else "cpu.cfs_burst_us"
    draft = Draft(node.look(), "cpu_burst")
    for name in ("", "somebody-else", container.rpartition("/")[2]):
        cpu_burst.make_room(draft, name, 30_000)
    node.apply(merge(draft.snapshot, [draft]))
    assert {node.read("cpu", place, file) for place in (group, container)} == {"30000"}
    assert node.read("cpu", other, file) == node.read("cpu", node.container(other), file) != "30000"


def test_a_larger_quota_needs_no_room(machine: Make) -> None:
    node = machine("mainline-v1")
    group = limited(node, "ls")
    node.enforce(slo("cpuBurstOnly"))
    draft = Draft(node.look(), "cpu_burst")
    cpu_burst.make_room(draft, node.container(group).rpartition("/")[2], 200_000)
    assert draft.targets == []
