"""Why the level is what it is, as a person reads it."""

from tests.detect.samples import at, rule, run
from tests.detect.test_presets import device

from cotenant.detect import explanation, presets
from cotenant.model import missing

REFAULTS = {
    "psi": {"io_some_ratio": 0.01, "memory_some_ratio": 0.0, "memory_full_ratio": 0.0},
    "memory": {"refault_per_sec": 5_000, "available_ratio": 0.7},
    "block": {"devices": {"a": device(read_bytes_per_sec=5_000 * 4096.0)}},
}


def test_a_signal_past_its_threshold_that_did_not_trigger_says_why() -> None:
    by = presets.get("default")
    found = run(by, [at(second, **REFAULTS) for second in range(30)])[-1]
    assert found.detections["memoryPressure"].triggered is False
    (line,) = [line for line in explanation.sentences(found, by) if "refault_per_sec is past its threshold" in line]
    assert "only beside a stall for I/O or memory" in line
    (line,) = [line for line in explanation.sentences(found) if "refault_per_sec is past its threshold" in line]
    assert "its condition does not hold" in line


def test_one_evaluation_past_a_threshold_is_not_long_enough() -> None:
    by = rule("psi.io_some_ratio 0.1 0.3 0.6", spec="  windowSeconds: 3\n")
    found = run(by, [at(second, psi={"io_some_ratio": 0.4}) for second in range(4)])
    assert [one.detections["ioCongestion"].triggered for one in found[2:]] == [False, True]
    said, later = explanation.sentences(found[2], by), explanation.sentences(found[3], by)
    assert "  psi.io_some_ratio is past its threshold, but not in 2 evaluations in a row yet." in said
    assert not any("past its threshold" in line for line in later)


def test_a_falling_signal_is_past_its_threshold_below_it() -> None:
    by = rule("memory.available_ratio 0.3 0.2 0.1", spec="  windowSeconds: 3\n")
    samples = [at(second, memory={"available_ratio": value}) for second, value in enumerate((0.25, 0.25, 0.25, 0.0))]
    calm, low = run(by, samples)[2:]
    assert not any("past its threshold" in line for line in explanation.sentences(calm, by))
    assert any("past its threshold" in line for line in explanation.sentences(low, by))


def test_what_is_unknown_comes_with_what_would_make_it_known() -> None:
    unknown = {"llc": "no_pmu", "online": "no_class"}
    found = run(presets.get("default"), [at(second, missing=unknown) for second in range(5)])[-1]
    said = explanation.sentences(found)
    for reason in ("no_pmu", "no_class"):
        (index,) = [number for number, line in enumerate(said) if f"({reason})" in line]
        assert said[index + 1] == f"  {missing.EXPLANATIONS[reason].remedy}."
