import msgspec
import pytest

from cotenant.model import usage
from cotenant.model.sample import Cgroup, Cpu, Memory, Sample

GIB = 1 << 30


def make(*groups: Cgroup, used: float | None = 0.5) -> Sample:
    return Sample(
        node="n",
        time="t",
        cpu=Cpu(online=4, used_ratio=used),
        memory=Memory(available_ratio=0.25),
        cgroups=list(groups),
    )


def test_millicores_and_what_no_pod_uses() -> None:
    group = Cgroup(path="k/a", cpu_used_ratio=0.25, memory_bytes=GIB, throttled_ratio=0.1)
    seen = usage.of_sample(make(group), {"k/a": "ns/a"}, 4 * GIB)
    assert seen.node.cpu_millicores == 2000
    assert seen.node.memory_bytes == 3 * GIB
    assert seen.pods["ns/a"].cpu_millicores == 1000
    assert seen.pods["ns/a"].throttled_ratio == pytest.approx(0.1)
    assert seen.system.cpu_millicores == 1000
    assert seen.system.memory_bytes == 2 * GIB


def test_one_unknown_pod_makes_the_rest_unknown_and_not_larger() -> None:
    seen = usage.of_sample(make(), {"k/gone": "ns/gone"}, 4 * GIB)
    assert seen.pods["ns/gone"].cpu_millicores is None
    assert seen.system.cpu_millicores is None


def test_an_unknown_node_is_unknown() -> None:
    assert usage.of_sample(make(used=None), {}, 0).node.cpu_millicores is None
    assert usage.of_sample(make(), {}, 0).node.memory_bytes is None


def test_memory_without_page_cache_where_the_kernel_splits_it_and_with_it_when_asked() -> None:
    sample = make(Cgroup(path="k/a", cpu_used_ratio=0.25, memory_bytes=3 * GIB, memory_anon_bytes=GIB))
    sample = msgspec.structs.replace(sample, memory=Memory(available_ratio=0.5, free_ratio=0.0))
    without = usage.of_sample(sample, {"k/a": "ns/a"}, 4 * GIB)
    assert (without.node.memory_bytes, without.pods["ns/a"].memory_bytes) == (2 * GIB, GIB)
    assert without.system.memory_bytes == GIB
    cached = usage.of_sample(sample, {"k/a": "ns/a"}, 4 * GIB, page_cache=True)
    assert (cached.node.memory_bytes, cached.pods["ns/a"].memory_bytes) == (4 * GIB, 3 * GIB)


def test_host_applications_are_not_the_system() -> None:
    sample = make(Cgroup(path="k/a", cpu_used_ratio=0.25, memory_bytes=GIB), Cgroup(path="h/x", cpu_used_ratio=0.125))
    seen = usage.of_sample(sample, {"k/a": "ns/a"}, 4 * GIB, {"h/x": "nginx"})
    assert seen.host_applications["nginx"].cpu_millicores == 500
    assert seen.system.cpu_millicores == 500
    assert seen.system.memory_bytes is None
