import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.detect import errors, parser, presets, rules

EXAMPLE = """\
apiVersion: cotenant.io/v1alpha1
kind: DetectionRuleConfig
metadata: {name: default}
spec:
  preset: default
  nodeSelector: {}
  windowSeconds: 10
  detections:
    ioCongestion:
      enabled: true
      weight: 0.3
      signals:
      - {signal: block.p99_usec, normal: 5000, threshold: 20000, saturation: 100000}
      fallbackSignals: []
  hardLimits: {psiMemoryFullRatio: 0.05, psiIoSomeRatio: null}
  hysteresis: {enterFor: 2, hardEnterForSeconds: 30, leaveRatio: 0.8, leaveForSeconds: 10, minHoldSeconds: 20}
  guard: {maxExcludedFraction: 0.05, trialSeconds: 120}
"""
HEAD = "apiVersion: cotenant.io/v1alpha1\nkind: DetectionRuleConfig\nmetadata: {name: mine}\n"


def parse(text: str) -> rules.Rules:
    return parser.parse(text, "r.yaml")[0].rules


def problems(text: str) -> list[errors.Problem]:
    with pytest.raises(errors.BadRules) as caught:
        parser.parse(text, "r.yaml")
    return list(caught.value.problems)


def one(text: str) -> errors.Problem:
    found = problems(text)
    assert len(found) == 1, found
    return found[0]


def signal_line(name: str, normal: object, threshold: object, saturation: object) -> str:
    item = f"{{signal: {name}, normal: {normal}, threshold: {threshold}, saturation: {saturation}}}"
    return HEAD + f"spec:\n  detections:\n    ioCongestion:\n      signals:\n      - {item}\n"


def test_the_example_of_the_contract() -> None:
    read = parse(EXAMPLE)
    expected = rules.SignalRule("block.p99_usec", 5000, 20000, 100000)
    assert read.detections["ioCongestion"] == rules.DetectionRule(True, 0.3, (expected,), ())
    assert read.hard_limits == rules.HardLimits(0.05, None)
    assert read.guard == rules.Guard(0.05, 120)
    assert read.hysteresis == rules.Hysteresis(2, 30, 0.8, 10, 20)
    assert read.detections["memoryPressure"] == presets.get("default").detections["memoryPressure"]


def test_what_a_file_leaves_out_keeps_the_presets_value() -> None:
    read = parse(HEAD + "spec: {preset: mco, hysteresis: {leaveRatio: 0.5}, hardLimits: {psiMemoryFullRatio: 0.2}}")
    mco = presets.get("mco")
    assert read.hysteresis == rules.Hysteresis(2, 2.0, 0.5, 10, 20)
    assert read.hard_limits == rules.HardLimits(0.2, 0.6)
    assert (read.detections, read.window_seconds, read.guard) == (mco.detections, mco.window_seconds, mco.guard)


def test_without_a_spec_it_is_the_default_preset() -> None:
    read = parse(HEAD)
    assert read.detections == presets.get("default").detections
    assert read.name == "mine"


def test_null_switches_a_hard_limit_off_and_elsewhere_means_left_out() -> None:
    read = parse(HEAD + "spec: {preset: mco, hardLimits: {psiMemoryFullRatio: null}, windowSeconds: null, guard: }")
    assert read.hard_limits == rules.HardLimits(None, 0.6)
    assert read.window_seconds == 10


def test_a_detection_that_is_given_lists_its_signals_anew() -> None:
    parsed = parser.parse(HEAD + "spec: {detections: {ioCongestion: {weight: 0.5}}}", "r.yaml")[0]
    assert parsed.rules.detections["ioCongestion"] == rules.DetectionRule(True, 0.5, (), ())
    assert parsed.remarks[0].startswith("r.yaml:4: spec.detections.ioCongestion: lists no signals")


def test_given_signals_carry_no_condition_of_the_preset() -> None:
    rule = parse(signal_line("psi.io_some_ratio", 0, 0.2, 1)).detections["ioCongestion"].signals[0]
    assert (rule.condition, rule.scale, rule.supporting) == ("", "", False)


def test_json_is_read_too_also_when_indented_by_tabs_and_with_exponents() -> None:
    spec = {"windowSeconds": 30, "detections": {"ioCongestion": {"signals": []}}}
    value = {"apiVersion": rules.API_VERSION, "kind": rules.KIND, "metadata": {"name": "j"}, "spec": spec}
    text = json.dumps(value, indent="\t").replace("30", "3e1")
    assert parse(text).window_seconds == 30
    assert parser.parse_object(value, "DetectionRuleConfig/j").rules.name == "j"


def test_several_documents() -> None:
    text = EXAMPLE + "---\n" + HEAD + "spec: {nodeSelector: {zone: a}}\n---\n"
    read = [parsed.rules for parsed in parser.parse(text, "r.yaml")]
    assert [r.name for r in read] == ["default", "mine"]
    assert rules.select(read, {"zone": "a"}).name == "mine"
    assert rules.select(read, {}).name == "default"
    assert "named 'mine'" in one(HEAD + "---\n" + HEAD).message


def test_most_requirements_wins_then_name() -> None:
    def of(name: str, selector: dict[str, str]) -> rules.Rules:
        return rules.Rules(name=name, node_selector=selector)

    candidates = [of("z", {"a": "1"}), of("b", {"a": "1", "b": "2"}), of("a", {"a": "1", "b": "2"}), of("default", {})]
    assert rules.select(candidates, {"a": "1", "b": "2"}).name == "a"
    assert rules.select(candidates, {"a": "1"}).name == "z"
    assert rules.select(candidates, {"a": "2"}).name == "default"


@pytest.mark.parametrize(
    ("change", "line", "key", "nearest"),
    [
        (("windowSeconds", "windowSecond"), 7, "spec.windowSecond", "windowSeconds"),
        (("ioCongestion", "iocongestion"), 9, "spec.detections.iocongestion", "ioCongestion"),
        (("block.p99_usec", "block.p99"), 13, "spec.detections.ioCongestion.signals[0].signal", "block.p99_usec"),
        (("threshold:", "treshold:"), 13, "spec.detections.ioCongestion.signals[0].treshold", "threshold"),
        (("leaveRatio", "leave_ratio"), 16, "spec.hysteresis.leave_ratio", "leaveRatio"),
        (("psiIoSomeRatio", "psiIoSome"), 15, "spec.hardLimits.psiIoSome", "psiIoSomeRatio"),
        (("trialSeconds", "trialSecs"), 17, "spec.guard.trialSecs", "trialSeconds"),
        (("preset: default", "preset: mcoo"), 5, "spec.preset", "mco"),
        (("kind: DetectionRuleConfig", "kind: DetectionRules"), 2, "kind", "DetectionRuleConfig"),
        (("metadata: {name", "metadata: {nmae"), 3, "metadata.nmae", "name"),
        (("spec:", "specs:"), 4, "specs", "spec"),
        (("v1alpha1", "v1"), 1, "apiVersion", "cotenant.io/v1alpha1"),
    ],
)
def test_an_unknown_word_is_refused_with_line_key_and_nearest(
    change: tuple[str, str], line: int, key: str, nearest: str
) -> None:
    problem = problems(EXAMPLE.replace(*change, 1))[0]
    assert (problem.file, problem.line, problem.key, problem.nearest) == ("r.yaml", line, key, nearest)
    assert str(problem).startswith(f"r.yaml:{line}: {key}: ")
    assert str(problem).endswith(f"did you mean {nearest!r}?")


@pytest.mark.parametrize(
    ("points", "accepted"),
    [
        ((1, 2, 3), True),
        ((1, 2, 2), True),
        ((2, 2, 3), False),
        ((3, 2, 4), False),
        ((1, 3, 2), False),
        ((3, 2, 1), False),
    ],
)
def test_rising_signals_need_normal_below_threshold_up_to_saturation(
    points: tuple[int, int, int], accepted: bool
) -> None:
    text = signal_line("block.p99_usec", *points)
    if accepted:
        parse(text)
    else:
        assert "rising" in one(text).message


@pytest.mark.parametrize(
    ("points", "accepted"),
    [
        ((0.3, 0.2, 0.1), True),
        ((0.3, 0.2, 0.2), True),
        ((0.2, 0.2, 0.1), False),
        ((0.1, 0.2, 0.3), False),
        ((0.3, 0.1, 0.2), False),
    ],
)
def test_falling_signals_the_other_way_round(points: tuple[float, float, float], accepted: bool) -> None:
    text = signal_line("memory.available_ratio", *points)
    if accepted:
        parse(text)
    else:
        assert "falling" in one(text).message


@pytest.mark.parametrize(
    "change",
    [
        ("weight: 0.3", "weight: -0.1"),
        ("weight: 0.3", "weight: .nan"),
        ("weight: 0.3", "weight: .inf"),
        ("weight: 0.3", "weight: true"),
        ("weight: 0.3", 'weight: "0.3"'),
        ("weight: 0.3", "weight: 1e999"),
        ("weight: 0.3", "weight: " + "1" * 350),
        ("weight: 0.3", "weight: [0.3]"),
        ("enabled: true", "enabled: 1"),
        ("enabled: true", "enabled: yes"),
        ("windowSeconds: 10", "windowSeconds: 2.9"),
        ("windowSeconds: 10", "windowSeconds: 0"),
        ("windowSeconds: 10", "windowSeconds: 10s"),
        ("leaveRatio: 0.8", "leaveRatio: 0"),
        ("leaveRatio: 0.8", "leaveRatio: 1.01"),
        ("leaveRatio: 0.8", "leaveRatio: -1"),
        ("psiMemoryFullRatio: 0.05", "psiMemoryFullRatio: 1.5"),
        ("psiMemoryFullRatio: 0.05", "psiMemoryFullRatio: -0.1"),
        ("psiIoSomeRatio: null", "psiIoSomeRatio: off"),
        ("maxExcludedFraction: 0.05", "maxExcludedFraction: 5"),
        ("enterFor: 2", "enterFor: 0"),
        ("enterFor: 2", "enterFor: 1.5"),
        ("leaveForSeconds: 10", "leaveForSeconds: -1"),
        ("minHoldSeconds: 20", "minHoldSeconds: .nan"),
        ("trialSeconds: 120", "trialSeconds: -3"),
        ("nodeSelector: {}", "nodeSelector: {zone: 1}"),
        ("nodeSelector: {}", "nodeSelector: {zone: a}"),
        ("normal: 5000, ", ""),
        ("normal: 5000", "normal: null"),
        ("fallbackSignals: []", "fallbackSignals: {}"),
        ("detections:", "detections: 3\n  guard: {}\n  x:"),
        ("  guard:", "  windowSeconds: 11\n  guard:"),
        ("metadata: {name: default}", "metadata: {name: 5}"),
        ("metadata:", "metadata: &a [*a]\nx:"),
    ],
)
def test_a_value_out_of_place_is_refused(change: tuple[str, str]) -> None:
    text = EXAMPLE.replace(*change, 1)
    assert text != EXAMPLE
    assert all(problem.line >= 1 and problem.key for problem in problems(text))


@pytest.mark.parametrize("number", ["0.8", "1", "1.0", "1e-3"])
def test_leave_ratio_up_to_one_is_accepted(number: str) -> None:
    assert parse(EXAMPLE.replace("leaveRatio: 0.8", f"leaveRatio: {number}")).hysteresis.leave_ratio == float(number)


def test_a_window_of_exactly_three_periods_is_accepted() -> None:
    assert parse(EXAMPLE.replace("windowSeconds: 10", "windowSeconds: 3")).window_seconds == 3
    with pytest.raises(errors.BadRules, match=r"3 periods of 5 s; write 15 or more"):
        parser.parse(EXAMPLE, "r.yaml", period_s=5)


@pytest.mark.parametrize("signal", ["psi.io_some_ratio", "online.psi.cpu_some_ratio", "cpu.steal_ratio"])
def test_ratios_outside_0_to_1_are_refused(signal: str) -> None:
    problem = one(signal_line(signal, 0, 0.2, 20))
    assert problem.key.endswith("signals[0].saturation")
    assert "at most 1" in problem.message


def test_the_probe_is_relative_to_its_baseline_and_may_pass_1() -> None:
    parse(signal_line("llc.probe_ratio", 1.2, 2, 5))


def test_weights_that_are_all_zero_are_refused_also_when_the_rest_is_disabled() -> None:
    zero = "".join(f"    {name}: {{weight: 0}}\n" for name in rules.DETECTIONS)
    assert "weight above 0" in one(HEAD + "spec:\n  detections:\n" + zero).message
    disabled = "".join(f"    {name}: {{enabled: false}}\n" for name in rules.DETECTIONS)
    assert "weight above 0" in one(HEAD + "spec:\n  detections:\n" + disabled).message


def test_every_problem_is_told_not_only_the_first() -> None:
    text = EXAMPLE.replace("enterFor: 2", "enterFor: 0").replace("weight: 0.3", "weight: -1")
    assert [problem.line for problem in problems(text)] == [11, 16]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "empty"),
        ("---\n---\n", 1, "empty"),
        ("just words", 1, "where keys and values are meant"),
        ("a: [1,\nb: 2\n", 3, "not YAML or JSON"),
        ("a: b\n\tc: d\n", 2, "not YAML or JSON"),
        ("a: \x00", 1, "not YAML or JSON"),
        ("[" * 500, 1, "nested too deeply"),
        ("#" * (1024 * 1024 + 1), 1, "larger than"),
    ],
)
def test_what_is_no_file_of_rules_is_refused(text: str, line: int, said: str) -> None:
    found = problems(text)
    assert found[0].line == line
    assert said in found[0].message


def test_kind_and_version_must_be_there() -> None:
    assert [problem.key for problem in problems("spec: {}\n")] == ["apiVersion", "kind"]


def test_keys_of_the_api_server_are_let_through() -> None:
    text = EXAMPLE.replace("{name: default}", "{name: default, generation: 3, managedFields: [], labels: {a: b}}")
    parse(text + "status: {activeGeneration: 3}\n")


def test_lines_say_where_a_value_came_from() -> None:
    lines = parser.parse(EXAMPLE, "r.yaml")[0].lines
    assert lines["spec.hysteresis.enterFor"] == 16
    assert lines["spec.detections.ioCongestion.signals[0]"] == 13
    assert "spec.detections.memoryPressure" not in lines


def refusal(text: str) -> str | None:
    try:
        parser.parse(text, "r.yaml")
    except errors.BadRules as error:
        return str(error)
    return None


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    said = refusal(text)
    assert said is None or (said.startswith("r.yaml:") and "\n" not in said)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(EXAMPLE) - 1), st.sampled_from(list("{}[]:,-#&*!|>'\"%@`\t\n 0a\\")))
def test_a_damaged_file_is_read_or_refused(at: int, character: str) -> None:
    said = refusal(EXAMPLE[:at] + character + EXAMPLE[at + 1 :])
    assert said is None or (said.startswith("r.yaml:") and "\n" not in said)
