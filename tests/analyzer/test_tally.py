"""What nodes use, added up between two tables."""

from collections.abc import Callable

import pytest

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.tally import Tally
from cotenant.api import usage
from cotenant.model import sample

MakeSample = Callable[..., sample.Sample]


def pod(name: str, used_ratio: float | None, memory: int | None = 100, offline: bool = False) -> sample.Cgroup:
    return sample.Cgroup(
        path=f"kubepods/pod-{name}",
        name=f"d/{name}",
        class_="offline" if offline else "online",
        cpu_used_ratio=used_ratio,
        memory_bytes=memory,
    )


def taken(*groups: sample.Cgroup, used_ratio: float | None = 0.5, online: int | None = 4) -> sample.Sample:
    return sample.Sample(
        node="n1",
        time="2026-11-30T00:00:00Z",
        uptime_s=1.0,
        cpu=sample.Cpu(online=online, used_ratio=used_ratio),
        memory=sample.Memory(available_ratio=0.75),
        cgroups=list(groups),
    )


def test_cpu_is_the_mean_and_memory_the_newest() -> None:
    tally = Tally()
    tally.take("n1", taken(pod("web", 0.25, 100), used_ratio=0.5))
    tally.take("n1", taken(pod("web", 0.5, 300), used_ratio=1.0))
    assert tally.roll() == {
        "n1": usage.Row(cpu_millicores=3000.0, memory_used_ratio=0.25, pods={"d/web": usage.PodRow(1500.0, 300, False)})
    }
    assert tally.roll() == {}


def test_page_cache_is_not_counted_where_the_node_tells_it_apart() -> None:
    tally = Tally()
    group = sample.Cgroup(path="kubepods/p", name="d/web", memory_bytes=900, memory_anon_bytes=300)
    tally.take("n1", taken(group))
    assert tally.roll()["n1"].pods["d/web"].memory_bytes == 300


def test_what_is_not_known_stays_unknown() -> None:
    tally = Tally()
    tally.take("n1", taken(pod("new", None, None), pod("job", 0.5, offline=True), used_ratio=None))
    row = tally.roll()["n1"]
    assert row.cpu_millicores is None
    assert row.pods == {"d/new": usage.PodRow(None, None, False), "d/job": usage.PodRow(2000.0, 100, True)}
    tally.take("n1", taken(pod("new", 0.5), online=None))
    assert tally.roll()["n1"].pods["d/new"].cpu_millicores is None


@pytest.mark.parametrize("name", ["system.slice/nginx.service", "kubepods", "d/web/main", None])
def test_groups_that_are_no_pods_are_left_out(name: str | None) -> None:
    tally = Tally()
    path = name if name != "d/web/main" else "kubepods/pod-web/1"
    tally.take("n1", taken(sample.Cgroup(path=path or "x", name=name, cpu_used_ratio=0.5)))
    assert tally.roll()["n1"].pods == {}


def test_a_sample_that_comes_twice_counts_once_and_only_while_somebody_reads(
    fleet: Fleet, make_sample: MakeSample
) -> None:
    fleet.hear("n1", [make_sample(1.0)])
    tally = Tally()
    fleet.tallies.add(tally)
    first = make_sample(2.0, cpu=sample.Cpu(online=4, used_ratio=0.5))
    fleet.hear("n1", [first])
    fleet.hear("n1", [first, make_sample(3.0, cpu=sample.Cpu(online=4, used_ratio=1.0))])
    assert tally.roll()["n1"].cpu_millicores == 3000.0


def test_a_row_survives_the_wire() -> None:
    row = usage.Row(cpu_millicores=1.5, memory_used_ratio=None, pods={"d/web": usage.PodRow(None, 7, True)})
    assert usage.decode(usage.encode(row)) == row
    assert usage.encode(row) == b'{"cpu_millicores":1.5,"pods":{"d/web":[null,7,true]}}'
