"""What online pods will not use of their requests: worked values, and checkpoints that are old, torn or strange."""

import pathlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.node import Usage, Use
from cotenant.model.pod import QOS_LABEL, Container, Pod
from cotenant.node import prediction
from cotenant.node.prediction import Predictor

GIB = 1 << 30
DAY = 24 * 3600.0
NOW = 1_800_000_000.0
ERROR = 0.05
"""A histogram's bucket is within 4.4 % of what it holds."""


def pod(name: str, qos: str = "LS", cpu: str = "4", memory: str = "8Gi", priority: int | None = 9000) -> Pod:
    return Pod(
        namespace="ns", name=name, uid=f"uid-{name}", kube_qos="Burstable", labels={QOS_LABEL: qos}, phase="Running",
        priority=priority, containers=(Container(name="main", requests={"cpu": cpu, "memory": memory}),),
    )  # fmt: skip


def watched(
    pods: dict[str, Pod], seconds: float, use: Use, system: Use | None = None, start: float = NOW
) -> tuple[Predictor, float]:
    """Return a predictor that has seen each pod use the same for so long, once a minute."""
    predictor, now = Predictor(start), start
    while now - start <= seconds:
        now += 60
        predictor.take(
            Usage(system=system or Use(cpu_millicores=0, memory_bytes=0), pods=dict.fromkeys(pods, use)), pods, now
        )
    return predictor, now


def test_a_pod_known_for_a_day_lends_what_it_does_not_use() -> None:
    pods = {"k/a": pod("a")}
    predictor, now = watched(pods, DAY, Use(cpu_millicores=1000, memory_bytes=2 * GIB))
    found = predictor.reclaimable(pods.values(), Use(), now)
    assert found.cpu_millicores == pytest.approx(4000 - 1.1 * 1000, rel=ERROR)
    assert found.memory_bytes == pytest.approx(8 * GIB - 1.1 * 2 * GIB, rel=ERROR)
    assert predictor.peak(now).cpu_millicores == pytest.approx(1100, rel=ERROR)
    assert predictor.peak(now).memory_bytes == pytest.approx(2.2 * GIB, rel=ERROR)


def test_a_young_pod_lends_nothing_and_a_young_node_says_nothing() -> None:
    old, young = pod("old"), pod("young")
    predictor, now = watched({"k/old": old}, DAY, Use(cpu_millicores=1000, memory_bytes=GIB))
    alone = predictor.reclaimable([old], Use(), now).cpu_millicores
    assert predictor.reclaimable([old, young], Use(), now).cpu_millicores == pytest.approx(alone, abs=2)
    assert predictor.reclaimable([young], Use(), now) == Use()
    fresh, soon = watched({"k/old": old}, 600, Use(cpu_millicores=1000))
    assert fresh.reclaimable([old], Use(), soon) == Use()
    assert fresh.peak(soon) == Use()


def test_a_node_without_prod_pods_has_nothing_to_lend_and_knows_it() -> None:
    batch = pod("batch", "BE", priority=5000)
    predictor, now = watched({"k/b": batch}, DAY, Use(cpu_millicores=1000, memory_bytes=GIB))
    assert predictor.reclaimable([batch], Use(), now) == Use(cpu_millicores=0, memory_bytes=0)


def test_cpu_of_lse_pods_is_never_lent_and_their_memory_is() -> None:
    own = {"k/a": pod("a", "LSE"), "k/b": pod("b")}
    predictor, now = watched(own, DAY, Use(cpu_millicores=1000, memory_bytes=2 * GIB))
    both = predictor.reclaimable(own.values(), Use(), now)
    alone = predictor.reclaimable([own["k/a"]], Use(), now)
    assert both.cpu_millicores == pytest.approx(2900, rel=ERROR)
    assert alone.cpu_millicores == 0
    # The history of all prod pods together bounds it: twice two gibibytes.
    assert alone.memory_bytes == pytest.approx(8 * GIB - 4.4 * GIB, rel=0.1)


@pytest.mark.parametrize(("qos", "lent"), [("LS", 4000 / 1.25 - 1100), ("LSR", 4000 - 1100)])
def test_requests_in_reference_cpus_are_fewer_of_the_nodes_own(qos: str, lent: float) -> None:
    """4 reference CPUs are 3.2 of a node whose CPUs do 1.25 times as much; LSR pods get theirs in whole ones."""
    predictor, now = watched({"k/a": pod("a", qos)}, DAY, Use(cpu_millicores=1000, memory_bytes=GIB))
    found = predictor.reclaimable([pod("a", qos)], Use(), now, Fraction(5, 4))
    assert found.cpu_millicores == pytest.approx(lent, rel=ERROR)
    assert found.memory_bytes == predictor.reclaimable([pod("a", qos)], Use(), now).memory_bytes


def test_what_the_system_uses_and_what_the_node_has_bound_it() -> None:
    pods = {"k/a": pod("a"), "k/b": pod("b", cpu="100m")}
    predictor, now = watched(
        pods, DAY, Use(cpu_millicores=500, memory_bytes=GIB), Use(cpu_millicores=1000, memory_bytes=GIB)
    )
    # Pod by pod 4000 − 550; together 4100 − 1.1 × (1000 + 1000).
    assert predictor.reclaimable(pods.values(), Use(), now).cpu_millicores == pytest.approx(1900, rel=ERROR)
    small = predictor.reclaimable(pods.values(), Use(cpu_millicores=1500, memory_bytes=GIB), now)
    assert small.cpu_millicores == pytest.approx(1500 - 2 * 550, rel=0.15)
    assert small.memory_bytes == 0


def test_a_peak_of_long_ago_fades() -> None:
    pods = {"k/a": pod("a")}
    busy, now = watched(pods, 3600, Use(cpu_millicores=3900, memory_bytes=GIB))
    calm = Usage(system=Use(cpu_millicores=0, memory_bytes=0), pods={"k/a": Use(cpu_millicores=100, memory_bytes=GIB)})
    for _ in range(4 * 24 * 60):
        now += 60
        busy.take(calm, pods, now)
    assert busy.pods["uid-a"].peak().cpu_millicores == pytest.approx(100, rel=ERROR)


def test_an_unknown_pod_makes_no_zero() -> None:
    pods = {"k/a": pod("a"), "k/b": pod("b")}
    predictor = Predictor(NOW)
    half = {"k/a": Use(cpu_millicores=1000, memory_bytes=GIB), "k/b": Use()}
    for minute in range(1, 40):
        predictor.take(Usage(pods=half), pods, NOW + 60 * minute)
    assert "uid-b" not in predictor.pods
    assert predictor.peak(NOW + 2400) == Use()
    assert predictor.reclaimable(pods.values(), Use(), NOW + 2400) == Use()


def test_a_checkpoint_survives_a_restart(tmp_path: pathlib.Path) -> None:
    pods = {"k/a": pod("a")}
    before, now = watched(pods, DAY, Use(cpu_millicores=1000, memory_bytes=2 * GIB))
    prediction.save(tmp_path / "state", prediction.dump(before))
    after = Predictor(now + 60)
    assert prediction.load(tmp_path / "state", after, now + 60) == ""
    expected = before.reclaimable(pods.values(), Use(), now + 60)
    assert after.reclaimable(pods.values(), Use(), now + 60) == expected
    assert after.peak(now + 60) == before.peak(now + 60)
    assert expected.cpu_millicores is not None
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["prediction.json"]


def test_what_was_not_seen_for_half_an_hour_is_left_out_of_a_checkpoint() -> None:
    pods = {"k/a": pod("a")}
    before, now = watched(pods, DAY, Use(cpu_millicores=1000))
    late = Predictor(now + 3600)
    prediction.restore(late, prediction.dump(before), now + 3600)
    assert late.pods == {}
    assert late.peak(now + 3600) == Use()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 2, "prod": {"since": 0, "seen_at": 0, "trained_at": 0}}',
     b'{"version":1,"prod":{"since":0,"seen_at":1.8e9,"trained_at":0,"cpu":{"x":1}},"system":{"since":0,"seen_at":0,"trained_at":0}}',
     b'{"version":1,"prod":{"since":0,"seen_at":1.8e9,"trained_at":0,"cpu":{"1":-1}},"system":{"since":0,"seen_at":0,"trained_at":0}}'],
)  # fmt: skip
def test_a_strange_checkpoint_is_dropped_and_named(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / prediction.FILE).write_bytes(content)
    predictor = Predictor(NOW)
    notice = prediction.load(tmp_path, predictor, NOW)
    assert str(tmp_path / prediction.FILE) in notice
    assert "start anew" in notice
    assert (predictor.pods, predictor.peak(NOW + DAY)) == ({}, Use())


def test_no_checkpoint_is_nothing_to_speak_of(tmp_path: pathlib.Path) -> None:
    assert prediction.load(tmp_path / "none", Predictor(NOW), NOW) == ""


def test_models_are_bounded_and_pods_that_went_are_forgotten() -> None:
    predictor, now = Predictor(NOW), NOW
    for turn in range(4):
        now += 60
        pods = {f"k/{turn}-{n}": pod(f"{turn}-{n}") for n in range(200)}
        predictor.take(Usage(pods=dict.fromkeys(pods, Use(cpu_millicores=1))), pods, now)
    assert len(predictor.pods) == prediction.MAX_PODS
    assert len(prediction.dump(predictor)) < prediction.MAX_BYTES // 10
    predictor.take(Usage(), {}, now + 3600)
    assert predictor.pods == {}


@given(
    st.lists(st.tuples(st.integers(0, 8000), st.integers(0, 16)), min_size=1, max_size=12),
    st.integers(0, 20_000),
    st.integers(0, 4000),
)
@settings(max_examples=40, deadline=None)
def test_never_more_than_was_asked_for_and_never_below_zero(
    minutes: list[tuple[int, int]], allocatable: int, system: int
) -> None:
    pods = {"k/a": pod("a"), "k/b": pod("b", "LSR")}
    predictor, now = Predictor(NOW - 2 * DAY), NOW - 2 * DAY
    for cpu, memory in minutes:
        now += 60
        use = Use(cpu_millicores=cpu, memory_bytes=memory * GIB)
        predictor.take(
            Usage(system=Use(cpu_millicores=system, memory_bytes=GIB), pods=dict.fromkeys(pods, use)), pods, now
        )
    for model in predictor.pods.values():
        model.since -= DAY
    found = predictor.reclaimable(pods.values(), Use(cpu_millicores=allocatable, memory_bytes=32 * GIB), now)
    assert found.cpu_millicores is not None
    assert 0 <= found.cpu_millicores <= min(8000, allocatable)
    assert found.memory_bytes is not None
    assert 0 <= found.memory_bytes <= 16 * GIB
