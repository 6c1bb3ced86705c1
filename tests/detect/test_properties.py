"""What holds for all samples."""

import dataclasses
import itertools
import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.samples import at, run

from cotenant.detect import catalogue, engine, presets, rules
from cotenant.model import sample

# Signals that are read by themselves: block percentiles depend on completions, too.
SIGNALS = [name for name in catalogue.SIGNALS if not name.startswith("block.")]

ratios = st.floats(0, 1, allow_nan=False)
maybe = st.none() | ratios
names = st.sampled_from(SIGNALS)


def of(second: int, values: dict[str, float | None]) -> sample.Sample:
    groups: dict[str, Any] = {}
    for name, value in values.items():
        *path, field = name.split(".")
        group = groups
        for part in path:
            group = group.setdefault(part, {})
        whole = field in ("oom_kills", "occupancy_bytes", "completions")
        group[field] = round(value) if whole and value is not None else value
    return at(second, **groups)


@st.composite
def listed(draw: st.DrawFn, least: int = 0) -> tuple[rules.SignalRule, ...]:
    chosen = draw(st.lists(names, min_size=least, max_size=3, unique=True))
    made = []
    for name in chosen:
        points = sorted(draw(st.lists(ratios, min_size=3, max_size=3, unique=True)))
        if catalogue.find(name).direction == "falling":
            points.reverse()
        made.append(rules.SignalRule(name, *points))
    return tuple(made)


@st.composite
def configs(draw: st.DrawFn) -> rules.Rules:
    detections = {
        name: rules.DetectionRule(
            enabled=draw(st.booleans()),
            weight=draw(st.floats(0, 5)),
            signals=draw(listed()),
            fallback_signals=draw(listed()),
        )
        for name in rules.DETECTIONS
    }
    limits = rules.HardLimits(draw(maybe), draw(maybe))
    return dataclasses.replace(presets.get("default"), detections=detections, hard_limits=limits)


series = st.lists(st.dictionaries(names, maybe, max_size=6), min_size=1, max_size=15)


@settings(max_examples=30, deadline=None)
@given(configs(), series)
def test_indexes_levels_and_coverage_lie_in_0_to_1_or_are_unknown(by: rules.Rules, values: Any) -> None:
    for found in run(by, [of(second, one) for second, one in enumerate(values)]):
        numbers = [found.interference_level, found.coverage]
        for detection in found.detections.values():
            numbers += [detection.index, *(state.index for state in detection.signals.values())]
            assert detection.triggered is not True or detection.index is not None or len(values) > 3
        assert all(number is None or 0 <= number <= 1 for number in numbers)
        assert (found.bucket == "unknown") == (found.interference_level is None)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(names, st.floats(-1e18, 1e18)), st.booleans())
def test_indexes_lie_in_0_to_1_whatever_a_sample_says(values: dict[str, float | None], throttled: bool) -> None:
    values = {**values, "online.psi.cpu_some_ratio": 0.5, "cpu.used_ratio": 1.0}
    if throttled:
        values["online.throttled_ratio"] = -1.5
    for found in run(presets.get("default"), [of(second, values) for second in range(4)]):
        numbers = [found.interference_level]
        for detection in found.detections.values():
            numbers += [detection.index, *(state.index for state in detection.signals.values())]
        assert all(number is None or 0 <= number <= 1 for number in numbers), numbers


@settings(max_examples=20, deadline=None)
@given(configs(), series)
def test_the_same_samples_give_the_same_bytes(by: rules.Rules, values: Any) -> None:
    taken = [of(second, one) for second, one in enumerate(values)]
    first = [msgspec.json.encode(found) for found in run(by, taken)]
    again = [msgspec.json.encode(found) for found in run(by, [sample.decode(sample.encode(one)) for one in taken])]
    assert first == again


@settings(max_examples=50, deadline=None)
@given(listed(least=1), st.data())
def test_the_level_is_monotone_in_each_signal(signals: tuple[rules.SignalRule, ...], data: st.DataObject) -> None:
    """One second of one signal made worse never lowers the level."""
    other = rules.DetectionRule(weight=1, signals=(rules.SignalRule("cpu.steal_ratio", 0, 0.5, 1),))
    detections = {"ioCongestion": rules.DetectionRule(weight=1, signals=signals), "cpuContention": other}
    by = dataclasses.replace(presets.get("default"), detections=detections)
    used = [signal.signal for signal in signals]
    values = {name: data.draw(ratios) for name in [*used, "cpu.steal_ratio"]}
    which = data.draw(st.sampled_from(used))
    change = data.draw(ratios)
    falling = catalogue.find(which).direction == "falling"
    worse = min(values[which], change) if falling else max(values[which], change)
    base = [of(second, values) for second in range(6)]
    raised = [*base[:3], of(3, {**values, which: worse}), *base[4:]]
    before, after = (run(by, taken)[-1].interference_level for taken in (base, raised))
    assert before is not None
    assert after is not None
    assert after >= before - 1e-9


@settings(max_examples=20, deadline=None)
@given(configs(), configs(), series)
def test_rules_can_be_replaced_at_any_time(before: rules.Rules, after: rules.Rules, values: Any) -> None:
    judge = engine.Engine(before)
    for second, one in enumerate(values):
        judge.evaluate(of(second, one))
    judge.replace(after)
    found = judge.evaluate(of(len(values), {}))
    assert list(found.detections) == [name for name in rules.DETECTIONS if after.detections[name].enabled]


@settings(max_examples=10, deadline=None)
@given(st.floats(0.05, 0.9), st.integers(0, 2**32))
def test_noise_at_the_threshold_does_not_flap(threshold: float, seed: int) -> None:
    """Ten minutes of white noise of ±20 % at the threshold: triggered once, or not at all."""
    noise = random.Random(seed)
    rule = rules.DetectionRule(signals=(rules.SignalRule("psi.io_some_ratio", 0, threshold, 1),))
    by = dataclasses.replace(presets.get("default"), detections={"ioCongestion": rule})
    values = [min(threshold * noise.uniform(0.8, 1.2), 1) for _ in range(600)]
    judged = run(by, [of(second, {"psi.io_some_ratio": value}) for second, value in enumerate(values)])
    states = [one.detections["ioCongestion"].triggered for one in judged]
    assert sum(a is not b for a, b in itertools.pairwise(states)) <= 2  # null to false, false to true
