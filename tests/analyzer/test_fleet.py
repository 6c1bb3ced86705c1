from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.analyzer.fleet import FORGET_SECONDS, Fleet
from cotenant.analyzer.rulebook import Rulebook, alarms_of, version_of
from cotenant.api import report, timestamp
from cotenant.detect import presets
from cotenant.kube.budget import Budget
from cotenant.model import sample
from cotenant.units.clock import ManualClock

MakeSample = Callable[..., sample.Sample]


def test_a_name_that_no_node_stands_behind_is_forgotten_when_it_is_silent(
    fleet: Fleet, clock: ManualClock, make_sample: MakeSample
) -> None:
    for number in range(50):
        assert fleet.rules_of(f"asked-{number}") is fleet.rules_of("other")
    assert not fleet.rulebook._assigned  # nothing is kept of who only asks
    fleet.relabel("real", {})
    for name in ("real", "invented"):
        fleet.hear(name, [make_sample(1.0, node=name)])
    clock.advance(599)
    fleet.tick()
    assert set(fleet.nodes) == {"real", "invented"}
    clock.advance(2)
    fleet.tick()
    assert set(fleet.nodes) == {"real"}
    assert set(fleet.rulebook._assigned) == {"real"}


def test_a_backlog_is_judged_by_the_node_s_clock(fleet: Fleet, clock: ManualClock, make_sample: MakeSample) -> None:
    """Thirty samples that arrive together tell the same as one a second."""
    fleet.hear("n1", [make_sample(100.0 + second, thrashing=second > 15) for second in range(30)])
    evaluation = fleet.nodes["n1"].evaluation
    assert evaluation is not None
    assert evaluation.detections["memoryPressure"].triggered
    assert fleet.nodes["n1"].observed_wall == clock.wall()  # the newest is as old as its arrival


@given(seconds=st.lists(st.sampled_from("ctu"), min_size=1, max_size=60), batch=st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_several_samples_in_a_message_tell_the_same_as_one_each(seconds: list[str], batch: int) -> None:
    """Calm, thrashing, or without any signal, in any order."""

    def made(at: int) -> sample.Sample:
        kind = seconds[at]
        psi = sample.Psi(memory_full_ratio={"c": 0.0, "t": 0.5}.get(kind))
        return sample.Sample(node="n1", boot_id="boot", uptime_s=at + 1.0, time="", period_s=1.0, psi=psi)

    told = []
    for size in (1, batch):
        clock = ManualClock()
        fleet = Fleet(Rulebook(presets.get("mco")), clock)
        for start in range(0, len(seconds), size):
            clock.advance(1)
            fleet.hear("n1", [made(at) for at in range(start, min(start + size, len(seconds)))])
        told.append((fleet.nodes["n1"].evaluation, fleet.nodes["n1"].material(), fleet.samples))
    assert told[0] == told[1]


def test_a_level_that_was_known_within_a_message_keeps_the_node_known(clock: ManualClock, fleet: Fleet) -> None:
    def made(at: float, known: bool) -> sample.Sample:
        psi = sample.Psi(memory_full_ratio=0.0 if known else None)
        return sample.Sample(node="n1", boot_id="boot", uptime_s=at, time="", period_s=1.0, psi=psi)

    fleet.hear("n1", [made(at, known=True) for at in (1.0, 2.0, 3.0)])
    clock.advance(50)
    again = [made(at, known=True) for at in (51.0, 52.0, 53.0)]
    fleet.hear("n1", [*again, made(70.0, known=False)])
    assert fleet.nodes["n1"].material().bucket == "none"
    clock.advance(59)
    fleet.hear("n1", [made(112.0, known=False)])
    assert fleet.nodes["n1"].material().bucket == "none"
    clock.advance(2)
    fleet.hear("n1", [made(114.0, known=False)])
    assert fleet.nodes["n1"].material().bucket == "unknown"


def test_a_message_whose_last_sample_is_of_no_use_counts(
    fleet: Fleet, clock: ManualClock, make_sample: MakeSample
) -> None:
    calm = [make_sample(100.0 + second) for second in range(4)]
    fleet.hear("n1", [*calm, calm[-1], make_sample(float("nan"))])
    assert fleet.nodes["n1"].evaluation is not None
    assert fleet.nodes["n1"].evaluation.interference_level == 0.0


def test_samples_that_come_twice_or_for_another_node_change_nothing(
    fleet: Fleet, clock: ManualClock, make_sample: MakeSample
) -> None:
    fleet.hear("n1", [make_sample(100.0 + second) for second in range(5)])
    fleet.hear("n1", [make_sample(100.0 + second, thrashing=True) for second in range(5)])
    assert (fleet.samples, fleet.refused) == (5, 5)
    fleet.hear("n1", [make_sample(105.0, node="somebody-else")])
    assert set(fleet.nodes) == {"n1"}  # a node speaks for itself only
    fleet.hear("n1", [make_sample(1.0, thrashing=False, node="n1")])  # its clock went back without a reboot
    assert fleet.refused == 6


@pytest.mark.parametrize("boot_id", [None, ""])
def test_a_node_without_boot_ids_is_heard_again_after_a_reboot(
    fleet: Fleet, clock: ManualClock, make_sample: MakeSample, boot_id: str | None
) -> None:
    def heard(*uptimes: float) -> list[sample.Sample]:
        return [msgspec.structs.replace(make_sample(uptime), boot_id=boot_id) for uptime in uptimes]

    fleet.hear("n1", heard(5000.0, 5001.0, 5002.0))
    fleet.hear("n1", heard(5001.0))  # came late
    fleet.hear("n1", heard(4000.0, 5001.0, 5002.0, 5003.0))  # sent again, in a new call
    assert (fleet.samples, fleet.refused) == (4, 4)
    fleet.hear("n1", heard(7.0, 8.0, 9.0))
    assert (fleet.samples, fleet.refused) == (7, 4)
    assert fleet.nodes["n1"].observed_wall == clock.wall()


def test_samples_of_two_boots_in_one_message_are_as_old_as_their_own_clock_says(
    fleet: Fleet, clock: ManualClock, make_sample: MakeSample
) -> None:
    before = [make_sample(900_000.0 + second) for second in range(3)]
    after = [msgspec.structs.replace(make_sample(20.0 + second), boot_id="next") for second in range(3)]
    fleet.hear("n1", [*before, *after])
    assert fleet.samples == 6
    assert fleet.nodes["n1"].observed_wall == clock.wall()


def test_a_node_of_which_no_sample_was_judged_was_never_observed(fleet: Fleet, make_sample: MakeSample) -> None:
    fleet.hear("n1", [make_sample(float("nan"))])
    (entry,) = fleet.summary().nodes
    assert (entry.bucket, entry.observed_at, entry.expires_at) == ("unknown", None, None)


@pytest.mark.parametrize("uptime_s", [float("nan"), float("inf"), float("-inf"), -1.0, 1e300])
def test_a_node_that_cannot_tell_its_time_harms_no_other(
    fleet: Fleet, clock: ManualClock, make_sample: MakeSample, uptime_s: float
) -> None:
    for _ in range(5):
        clock.advance(1)
        fleet.hear("odd", [make_sample(uptime_s, node="odd")])
        fleet.hear("mixed", [make_sample(uptime_s, node="mixed"), make_sample(clock.monotonic(), node="mixed")])
        fleet.hear("n1", [make_sample(clock.monotonic())])
        fleet.tick()
    assert (fleet.samples, fleet.refused) == (10, 10)
    levels = {entry.name: entry.interference_level for entry in fleet.summary().nodes}
    assert levels == {"odd": None, "mixed": 0.0, "n1": 0.0}
    assert [node.begin_write()[1].observed_at for node in fleet.due(10)]


def test_a_node_that_left_is_forgotten_later_unless_it_comes_back(
    fleet: Fleet, clock: ManualClock, live: Callable[..., None]
) -> None:
    live(3, node="a")
    live(3, node="b")
    fleet.left("a")
    fleet.left("b")
    clock.advance(FORGET_SECONDS - 1)
    fleet.relabel("b", {"x": "y"})
    clock.advance(2)
    fleet.tick()
    assert set(fleet.nodes) == {"b"}


def test_the_summary_counts_all_and_names_the_worst(
    fleet: Fleet, clock: ManualClock, live: Callable[..., None]
) -> None:
    for number in range(600):
        fleet.take_over({f"node-{number:04}": report.ReportStatus(bucket="none", observed_at=timestamp.render(0))}, 0)
    live(60, thrashing=True, node="worst")
    summary = fleet.summary()
    assert summary.counts["nodes"] == 601
    assert summary.counts["hard"] == 1
    assert len(summary.nodes) == 500
    assert [node.name for node in summary.nodes if node.hard] == ["worst"]
    assert [node.name for node in summary.nodes] == sorted(node.name for node in summary.nodes)
    assert len(msgspec.json.encode(summary)) < 512 * 1024


def test_the_budget_refills_and_has_a_burst(clock: ManualClock) -> None:
    budget = Budget(clock, per_second=2, burst=5)
    assert budget.available() == 5
    budget.spend(5)
    assert budget.available() == 0
    clock.advance(1.5)
    assert budget.available() == 3
    clock.advance(100)
    assert budget.available() == 5


def rules_object(name: str, generation: int, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "cotenant.io/v1alpha1",
        "kind": "DetectionRuleConfig",
        "metadata": {"name": name, "generation": generation},
        "spec": spec,
    }


def test_rules_are_chosen_by_labels_and_the_most_requirements_win() -> None:
    book = Rulebook()
    book.put(rules_object("default", 1, windowSeconds=11))
    book.put(rules_object("db", 1, windowSeconds=12, nodeSelector={"pool": "db"}))
    book.put(rules_object("fast-db", 1, windowSeconds=13, nodeSelector={"pool": "db", "disk": "nvme"}))
    windows = {
        name: book.engine_for(name, labels).in_force.window_seconds
        for name, labels in {
            "a": {},
            "b": {"pool": "db"},
            "c": {"pool": "db", "disk": "nvme"},
            "d": {"pool": "web"},
        }.items()
    }
    assert windows == {"a": 11, "b": 12, "c": 13, "d": 11}
    book.remove("fast-db")
    assert book.engine_for("c", {"pool": "db", "disk": "nvme"}).in_force.window_seconds == 12
    book.remove("default")
    assert book.engine_for("a", {}).in_force == presets.get()


def test_rules_that_are_refused_leave_the_last_good_in_force() -> None:
    book = Rulebook()
    book.put(rules_object("default", 1, windowSeconds=11))
    refused = book.put(rules_object("default", 2, windowSeconds=-1))
    assert refused.refused is not None
    assert "windowSeconds" in refused.refused
    assert (refused.generation, refused.refused_generation) == (1, 2)
    assert book.engine_for("a", {}).in_force.window_seconds == 11
    mended = book.put(rules_object("default", 3, windowSeconds=14))
    assert (mended.refused, mended.generation) == (None, 3)
    assert book.engine_for("a", {}).in_force.window_seconds == 14


def test_new_rules_that_are_refused_are_for_nobody() -> None:
    book = Rulebook()
    told = book.put(rules_object("bad", 1, windowSeconds=-1, nodeSelector={"a": "b"}))
    assert told.refused is not None
    assert book.engine_for("x", {"a": "b"}).in_force == presets.get()


def test_alarms_lie_before_the_threshold_on_the_signal_s_own_side() -> None:
    alarms = {alarm.signal: alarm for alarm in alarms_of(presets.get("mco"))}
    thresholds = {
        signal.signal: signal.threshold
        for detection in presets.get("mco").detections.values()
        for signal in (*detection.signals, *detection.fallback_signals)
    }
    assert alarms
    for name, alarm in alarms.items():
        assert (alarm.value > thresholds[name]) == alarm.falling


def test_the_version_changes_with_the_rules_only() -> None:
    assert version_of(presets.get()) == version_of(presets.get())
    assert version_of(presets.get()) != version_of(presets.get("mco"))


def test_a_change_of_leader_changes_nothing_of_what_is_published(clock: ManualClock, make_sample: MakeSample) -> None:
    """500 nodes, one in five of them past a hard limit; the next leader gets the last 30 samples of each, then more."""
    nodes, hurt_each = 500, 5

    def hear(fleet: Fleet, first: int, last: int) -> None:
        for second in range(first, last):
            for number in range(nodes):
                hurt = number % hurt_each == 0
                fleet.hear(f"n{number}", [make_sample(float(second), thrashing=hurt, node=f"n{number}")])

    def published(fleet: Fleet) -> dict[str, report.ReportStatus]:
        written = {}
        for node in fleet.due(nodes):
            material, status = node.begin_write()
            node.end_write(material, clock.monotonic())
            written[node.node] = status
        return written

    quick = presets.get("mco")  # in force after two seconds
    before = Fleet(Rulebook(quick), clock)
    hear(before, 0, 6)
    statuses = published(before)
    assert sum(bool(status.hard) for status in statuses.values()) == nodes // hurt_each

    after = Fleet(Rulebook(quick), clock)
    after.take_over(statuses, quick.window_seconds + quick.hysteresis.min_hold_seconds)
    assert published(after) == {}
    for number in range(nodes):  # nothing of a node is known at first, and only some nodes are back
        if number % 2:
            after.hear(f"n{number}", [make_sample(6.0, node=f"n{number}")])
    clock.advance(11)
    assert published(after) == {}
    hear(after, 7, 13)
    clock.advance(quick.window_seconds + quick.hysteresis.min_hold_seconds)
    assert {name: (status.bucket, status.hard) for name, status in published(after).items()} == {}
