import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.detect import engine, errors, parser, presets, templates

HEAD = "apiVersion: cotenant.io/v1alpha1\nkind: StrategyTemplates\ntemplates:\n"


def test_the_bundled_ones_are_those_that_are_promised() -> None:
    assert set(templates.bundled()) == {"redis", "inference", "search", "web", "batch", "scan", "io-stress"}
    assert {name for name, one in templates.bundled().items() if one.qos_class == "BE"} == {
        "batch",
        "scan",
        "io-stress",
    }
    for one in templates.bundled().values():
        assert one.description
        if one.weights:
            assert sum(one.weights.values()) == pytest.approx(1.0)


def test_a_template_changes_weights_and_thresholds_and_nothing_else() -> None:
    preset = presets.get()
    rules = templates.applied(preset, templates.bundled(), ["redis"])
    assert {name: rule.weight for name, rule in rules.detections.items()} == templates.bundled()["redis"].weights
    before = {signal.signal: signal for signal in preset.detections["cpuContention"].signals}
    after = {signal.signal: signal for signal in rules.detections["cpuContention"].signals}
    waits = after["online.run_queue_latency_p99_usec"]
    assert (waits.normal, waits.threshold, waits.saturation) == (1000, 4000, 20000)
    assert after["online.psi.cpu_some_ratio"] == before["online.psi.cpu_some_ratio"]
    assert (rules.hysteresis, rules.guard, rules.hard_limits) == (preset.hysteresis, preset.guard, preset.hard_limits)


def test_a_bundled_threshold_is_never_looser_than_the_preset() -> None:
    for one in templates.bundled().values():
        rules = templates.applied(presets.get(), templates.bundled(), [one.name])
        listed = {
            signal.signal: signal
            for rule in rules.detections.values()
            for signal in (*rule.signals, *rule.fallback_signals)
        }
        for signal, points in one.thresholds.items():
            assert listed[signal].threshold == points.threshold, (one.name, signal)


@given(st.lists(st.sampled_from([*templates.bundled(), "unheard-of"]), max_size=4), st.data())
def test_the_most_sensitive_type_decides_in_whatever_order(hosted: list[str], data: st.DataObject) -> None:
    rules = templates.applied(presets.get(), templates.bundled(), hosted)
    assert rules == templates.applied(presets.get(), templates.bundled(), data.draw(st.permutations(hosted)))
    for name in hosted:
        alone = templates.applied(presets.get(), templates.bundled(), [name])
        for detection, rule in alone.detections.items():
            if name in templates.bundled() and detection in templates.bundled()[name].weights:
                assert rules.detections[detection].weight >= rule.weight
            for one, other in zip(rule.signals, rules.detections[detection].signals, strict=True):
                assert other.threshold <= one.threshold or one.signal == "memory.available_ratio"


def test_a_rule_that_is_stricter_already_keeps_its_threshold_and_what_is_disabled_stays_so() -> None:
    text = (
        "{apiVersion: cotenant.io/v1alpha1, kind: DetectionRuleConfig, spec: {detections: {cpuContention: {weight: 0.5,"
        " signals: [{signal: online.run_queue_latency_p99_usec, normal: 1, threshold: 2, saturation: 3}]},"
        " ioCongestion: {enabled: false, weight: 0.2}}}}"
    )
    own = parser.parse(text, "own")[0].rules
    rules = templates.applied(own, templates.bundled(), ["redis"])
    assert rules.detections["cpuContention"].signals[0].threshold == 2
    assert rules.detections["ioCongestion"].weight == 0.2
    assert not rules.detections["ioCongestion"].enabled


def test_a_disk_s_own_scale_gives_way_to_a_threshold() -> None:
    own = templates.parse(
        HEAD + "  db: {thresholds: {block.p99_usec: {normal: 100, threshold: 500, saturation: 1000}}}", "own"
    )
    rules = templates.applied(presets.get(), own, ["db"])
    found = [
        signal for signal in rules.detections["ioCongestion"].fallback_signals if signal.signal == "block.p99_usec"
    ]
    found += [signal for signal in rules.detections["ioCongestion"].signals if signal.signal == "block.p99_usec"]
    assert found
    assert {(signal.threshold, signal.scale) for signal in found} == {(500, "")}


def test_every_combination_makes_an_engine() -> None:
    for name in templates.bundled():
        for other in templates.bundled():
            engine.Engine(templates.applied(presets.get(), templates.bundled(), [name, other]))


def test_a_user_s_file_adds_types_and_replaces_one_whole() -> None:
    text = HEAD + "  redis: {qosClass: LSR}\n  games: {affinity: soft, weights: {cpuContention: 1}}\n"
    found = templates.over_bundled(text, "own")
    assert found["redis"] == templates.Template(name="redis", qos_class="LSR")
    assert found["games"].weights == {"cpuContention": 1}
    assert found["search"] == templates.bundled()["search"]


def test_what_is_printed_can_be_read_again() -> None:
    printed = json.dumps(templates.document(templates.bundled()))
    assert templates.parse(printed, "printed") == templates.bundled()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  a: {qosClass: LX}", "own:4: templates.a.qosClass: 'LX' is not one of LSE, LSR, LS, BE"),
        ("  a: {wieghts: {}}", "did you mean 'weights'?"),
        ("  a: {weights: {ioCongestoin: 1}}", "did you mean 'ioCongestion'?"),
        ("  a: {weights: {ioCongestion: 2}}", "must be at least 0 and at most 1"),
        ("  a: {weights: {ioCongestion: 0}}", "give one a weight above 0"),
        ("  a: {thresholds: {psi.io_some_ratoi: {}}}", "did you mean 'psi.io_some_ratio'?"),
        ("  a: {thresholds: {psi.io_some_ratio: {normal: 0.1, threshold: 0.2}}}", "saturation missing"),
        (
            "  a: {thresholds: {psi.io_some_ratio: {normal: 0.3, threshold: 0.2, saturation: 0.5}}}",
            "is rising, so normal < threshold ≤ saturation is meant",
        ),
        ("  a: {thresholds: {psi.io_some_ratio: {normal: 0.1, threshold: 0.2, saturation: 5}}}", "is a ratio"),
        ("  a: 7", "where keys and values are meant"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(errors.BadRules) as refused:
        templates.parse(HEAD + text, "own")
    assert said in str(refused.value)


def test_a_pod_s_own_type_comes_before_its_namespace_s() -> None:
    label = templates.WORKLOAD_TYPE_LABEL
    assert templates.type_of({label: "redis"}, {label: "web"}) == "redis"
    assert templates.type_of({}, {label: "web"}) == "web"
    assert templates.type_of({label: ""}, {}) is None
