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
