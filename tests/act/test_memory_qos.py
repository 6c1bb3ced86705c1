from collections.abc import Callable
from typing import Any

import pytest
from tests.act.machine import Machine, writes

from cotenant.act import memory_qos
from cotenant.model.policy import MemoryQos

Make = Callable[..., Machine]
MIB = 1 << 20


def slo(name: str = "ls", **changes: Any) -> dict[str, Any]:
    return {"resourceQOSStrategy": {f"{name}Class": {"memoryQOS": {"enable": True, **changes}}}}


def memory(request: str, limit: str | None = None) -> dict[str, Any]:
    return {"requests": {"memory": request}, **({"limits": {"memory": limit}} if limit else {})}


@pytest.mark.parametrize(
    ("request_mib", "limit_mib", "percent", "high"),
    [
        (1024, 2048, 80, 1_932_734_464),
        (1024, 1024, 80, 1_073_741_824),
        (0, 512, 50, 268_435_456),
        (100, 333, 77, 292_978_688),
    ],
)
def test_throttling_point(request_mib: int, limit_mib: int, percent: int, high: int) -> None:
    assert memory_qos.high_bytes(request_mib * MIB, limit_mib * MIB, percent) == high


def test_a_limit_below_the_request_is_no_negative_throttling_point() -> None:
    assert memory_qos.high_bytes(1024 * MIB, 512 * MIB, 80) == 1024 * MIB


def test_guarantees_go_to_container_pod_and_directory(machine: Make) -> None:
    node = machine("mainline-v2")
    wanted = slo(minLimitPercent=50, lowLimitPercent=25, throttlingPercent=80)
    first = node.pod("a", "Burstable", "LS", containers=[memory("1Gi", "2Gi"), memory("512Mi", "512Mi")])
    node.pod("b", "Burstable", "LS", containers=[memory("512Mi", "1Gi")])
    node.enforce(wanted)
    groups = [node.container(first), first, "kubepods/burstable", "kubepods"]
    assert [node.read("memory", g, "memory.min") for g in groups] == [str(n * MIB) for n in (512, 768, 1024, 1024)]
    # low is raised to min
    assert [node.read("memory", g, "memory.low") for g in groups] == [str(n * MIB) for n in (512, 768, 1024, 1024)]
    high = [
        int(node.read("memory", g, "memory.high")) for g in (node.container(first), node.container(first, 1), first)
    ]
    assert high == [1_932_734_464, 512 * MIB, 1_932_734_464 + 512 * MIB]
    assert node.plan(wanted).items == ()


def test_anolis_watermarks_follow_the_class(machine: Make) -> None:
    node = machine("anolis-bvt")
    group = node.pod("ls", "Burstable", "LS")
    node.enforce(slo())
    read = {file: node.read("memory", group, f"memory.{file}") for file in ("wmark_ratio", "wmark_min_adj")}
    assert read == {"wmark_ratio": "95", "wmark_min_adj": "-25"}


def test_the_annotation_is_over_the_policys_template_and_that_over_the_class(machine: Make) -> None:
    node = machine("mainline-v2")
    annotation = {"koordinator.sh/memoryQOS": {"policy": "none", "lowLimitPercent": 100}}
    group = node.pod("ls", "Burstable", "LS", containers=[memory("1Gi")], annotations=annotation)
    node.enforce(slo(minLimitPercent=50))
    assert node.read("memory", group, "memory.min") == "0"
    assert node.read("memory", group, "memory.low") == str(1024 * MIB)


def test_without_low_on_v1_the_soft_limit_stands_in(machine: Make) -> None:
    node = machine("mainline-v1")
    group = node.pod("ls", "Burstable", "LS", containers=[memory("1Gi")])
    node.enforce(slo(lowLimitPercent=100))
    assert node.read("memory", group, "memory.soft_limit_in_bytes") == str(1024 * MIB)


def test_openeuler_reclaims_before_anybody_is_slowed(machine: Make) -> None:
    node = machine("openeuler")
    group = node.pod("be", "BestEffort", "BE", containers=[{"limits": {"kubernetes.io/batch-memory": "1Gi"}}])
    node.enforce(slo("be", throttlingPercent=80))
    assert node.read("memory", group, "memory.high_async_ratio") == "80"


def test_offline_pods_are_measured_by_batch_memory(machine: Make) -> None:
    node = machine("mainline-v2")
    both = {"kubernetes.io/batch-memory": "1Gi"}
    group = node.pod("be", "BestEffort", "BE", containers=[{"limits": both, "requests": both}])
    node.enforce(slo("be", throttlingPercent=50))
    assert node.read("memory", node.container(group), "memory.high") == str(1 << 30)


def test_a_class_that_is_off_is_left_alone_unless_we_wrote_it(machine: Make) -> None:
    node = machine("mainline-v2")
    group = node.pod("ls", "Burstable", "LS", containers=[memory("1Gi")])
    node.write("memory", group, "memory.min", str(MIB))
    assert node.plan({}).items == ()
    path = node.path("memory", group, "memory.min")
    assert list(writes(node.plan({}, journal={path: "0"}), "memory.min").values()) == ["0"]


@pytest.mark.parametrize(
    ("fields", "limit", "size"),
    [
        ({"page_cache_limit_percent": 50}, 1000, 500),
        ({"page_cache_limit_size": 300}, 1000, 300),
        ({"page_cache_limit_size": 300, "page_cache_limit_percent": 50}, 1000, 300),
        ({"page_cache_limit_size": 3000}, 1000, 1000),
        ({"page_cache_limit_size": 300}, None, 300),
        ({"page_cache_limit_percent": 50}, None, None),
        ({"page_cache_limit_percent": 0}, None, 0),
        ({"page_cache_limit_size": 0}, 1000, 0),
        ({}, 1000, None),
    ],
)
def test_page_cache_of_a_pod(fields: dict[str, Any], limit: int | None, size: int | None) -> None:
    assert memory_qos.page_cache_bytes(MemoryQos(**fields), limit) == size


def page_cache(node: Machine, group: str) -> tuple[str, ...]:
    return tuple(node.read("memory", group, f"memory.pagecache_limit.{file}") for file in ("size", "sync", "enable"))


def test_page_cache_is_limited_at_the_pod_and_switched_off_again(machine: Make) -> None:
    node = machine("anolis-bvt")
    group = node.pod("a", "Burstable", "LS", containers=[memory("1Mi", "2Mi"), memory("1Mi", "2Mi")])
    node.enforce(slo(pageCacheLimitPercent=50, pageCacheReclaimSync=True))
    assert page_cache(node, group) == (str(2 * MIB), "1", "1")
    assert page_cache(node, node.container(group)) == ("0", "0", "0")
    node.enforce(slo(pageCacheLimitSize=0))
    assert page_cache(node, group)[0::2] == ("0", "0")
    node.enforce(slo(pageCacheLimitSize=MIB, pageCacheEnable=False))
    assert page_cache(node, group)[0::2] == (str(MIB), "0")
