import httpx
import msgspec
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from cotenant.model.loss import Loss
from cotenant.model.sample import Cgroup, CgroupPsi, Device
from cotenant.web import metrics, sample_metrics


def values(text: str) -> dict[str, float]:
    return {
        f"{sample.name}{sorted(sample.labels.items()) if sample.labels else ''}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_valid_openmetrics_in_base_units(client: httpx.AsyncClient, hurt) -> None:  # type: ignore[no-untyped-def]
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    found = values(answer.text)
    assert found["cotenant_block_p99_seconds"] == 0.065
    assert found["cotenant_interference_level"] == 0.3
    assert found["cotenant_detection_triggered[('detection', 'ioCongestion')]"] == 1
    assert found["cotenant_signal_missing[('reason', 'no_pmu'), ('signal', 'llc')]"] == 1


async def test_unknown_has_no_series(client: httpx.AsyncClient) -> None:
    found = values((await client.get("/metrics")).text)
    assert not [name for name in found if name.startswith(("cotenant_llc", "cotenant_cpu_steal", "cotenant_online"))]
    assert "cotenant_detection_index[('detection', 'cachePollution')]" not in found
    assert "cotenant_agent_bpf_cpu_ratio" not in found


async def test_what_ebpf_missed_is_told_by_reason(client, feed) -> None:  # type: ignore[no-untyped-def]
    assert not [name for name in values((await client.get("/metrics")).text) if "bpf_lost" in name]
    losses = (Loss("block", "unseen", 3), Loss("run_queue", "recursion", 0))
    cost = msgspec.structs.replace(feed.moment.cost, bpf_losses=losses)
    feed.moment = msgspec.structs.replace(feed.moment, cost=cost)
    found = values((await client.get("/metrics")).text)
    name = "cotenant_agent_bpf_lost_events_total"
    assert found[f"{name}[('program', 'block'), ('reason', 'unseen')]"] == 3
    assert found[f"{name}[('program', 'run_queue'), ('reason', 'recursion')]"] == 0


async def test_the_older_text_format_for_who_asks_for_it(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics", headers={"Accept": "text/plain;version=0.0.4"})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_the_number_of_series_is_bounded(client, feed) -> None:  # type: ignore[no-untyped-def]
    psi = CgroupPsi(**dict.fromkeys(CgroupPsi.__struct_fields__, 0.1))
    numbers = set(Cgroup.__struct_fields__) - {"path", "class_", "name", "psi"}
    full = Cgroup(path="", class_="online", psi=psi, **dict.fromkeys(numbers, 1))
    many = [msgspec.structs.replace(full, path=f"g{n}", cpu_used_ratio=n / 1000) for n in range(1000)]
    devices = {f"sd{n}": Device(kind="ssd", completions=1, p99_usec=1.0, in_flight=0) for n in range(300)}
    block = msgspec.structs.replace(feed.moment.sample.block, devices=devices)
    sample = msgspec.structs.replace(feed.moment.sample, cgroups=many, block=block)
    feed.moment = msgspec.structs.replace(feed.moment, sample=sample)
    found = values((await client.get("/metrics")).text)
    assert len(found) <= metrics.SERIES_LIMIT
    assert found["cotenant_cgroups"] == 1000
    assert "cotenant_cgroup_cpu_used_ratio[('cgroup', 'g999'), ('class', 'online'), ('name', '')]" in found


def test_groups_with_a_class_come_first() -> None:
    plain = Cgroup(path="busy", cpu_used_ratio=0.9)
    online = Cgroup(path="quiet", class_="online", cpu_used_ratio=0.0)
    assert [cgroup.path for cgroup in sample_metrics.busiest([plain, online], 2)] == ["quiet", "busy"]
