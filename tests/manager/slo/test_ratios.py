"""Normalization and amplification: worked values, and what cannot be told."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.koordinator.topology import CpuBasicInfo
from cotenant.manager.slo import ratios

MODEL = {
    "baseRatio": 1.1, "hyperThreadEnabledRatio": 1.2, "turboEnabledRatio": 1.3, "hyperThreadTurboEnabledRatio": 1.45,
}  # fmt: skip
STRATEGY = {"enable": True, "ratioModel": {"xeon": MODEL, "bare": {"baseRatio": 2.0}}}


def info(model: str = "xeon", threads: bool = False, turbo: bool = False) -> CpuBasicInfo:
    return CpuBasicInfo(cpu_model=model, hyper_thread_enabled=threads, turbo_enabled=turbo)


@pytest.mark.parametrize(
    ("threads", "turbo", "text"),
    [(False, False, "1.10"), (True, False, "1.20"), (False, True, "1.30"), (True, True, "1.45")],
)
def test_the_ratio_is_that_of_the_model_and_what_is_switched_on(threads: bool, turbo: bool, text: str) -> None:
    assert ratios.normalization(STRATEGY, None, info(threads=threads, turbo=turbo)).text == text


@pytest.mark.parametrize(
    ("strategy", "label", "text"),
    [
        ({"enable": False}, None, "1.00"),
        ({}, None, "1.00"),
        (STRATEGY, "false", "1.00"),
        ({**STRATEGY, "enable": False}, "true", "1.10"),
        ({"enable": True, "defaultRatio": 1.5}, None, "1.50"),
    ],
)
def test_the_label_goes_over_the_strategy(strategy: dict[str, Any], label: str | None, text: str) -> None:
    assert ratios.normalization(strategy, label, info()).text == text


@pytest.mark.parametrize(
    ("label", "cpus", "reason"),
    [
        (None, None, "no cpu-basic-info"),
        (None, info("epyc"), "ratioModel has nothing for 'epyc'"),
        (None, info("bare", turbo=True), "turboEnabledRatio has nothing for 'bare'"),
        ("yes", info(), "label cpu-normalization-enabled is 'yes': write true or false"),
    ],
)
def test_what_cannot_be_told_has_a_reason(label: str | None, cpus: CpuBasicInfo | None, reason: str) -> None:
    found = ratios.normalization(STRATEGY, label, cpus)
    assert found.text is None
    assert reason in found.reason


@pytest.mark.parametrize(
    ("text", "model"), [('{"cpuModel": "xeon", "turboEnabled": true}', "xeon"), ("{}", None), ("{", None), (None, None)]
)
def test_basic_info(text: str | None, model: str | None) -> None:
    found = ratios.basic_info(text)
    assert (found.cpu_model if found is not None else None) == model


@pytest.mark.parametrize(
    ("strategy", "normalization", "text"),
    [
        ({"enable": False, "resourceAmplificationRatio": {"cpu": 2}}, None, None),
        ({"enable": True, "resourceAmplificationRatio": {"memory": 1.5, "cpu": 2}}, None, '{"cpu":2,"memory":1.5}'),
        ({"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}}, "1.20", '{"cpu":1.8}'),
        ({"enable": False}, "1.20", '{"cpu":1.2}'),
        ({"enable": False}, "1.00", None),
        ({"enable": False}, "1e400", None),  # out of its range: somebody else's slip
        ({"enable": True, "resourceAmplificationRatio": {"memory": 1}}, "broken", '{"memory":1}'),
    ],
)
def test_amplification(strategy: dict[str, Any], normalization: str | None, text: str | None) -> None:
    assert ratios.amplification_text(ratios.amplification(strategy, normalization)) == text


def test_what_is_the_same_is_not_written_again() -> None:
    assert ratios.same_normalization("1.2", "1.20")
    assert ratios.same_normalization(None, "1.00")
    assert not ratios.same_normalization("1.21", "1.20")
    assert not ratios.same_normalization("broken", "1.00")
    assert ratios.same_amplification('{"memory": 1.0, "cpu": 1.8}', '{"cpu":1.8,"memory":1}')
    assert not ratios.same_amplification("{", '{"cpu":1.8}')
    assert not ratios.same_amplification(None, '{"cpu":1.8}')


@settings(max_examples=60, deadline=None)
@given(st.floats(1, 5), st.floats(1, 100))
def test_nothing_is_ever_shown_as_less_than_it_is(ratio: float, cpu: float) -> None:
    text = ratios.normalization({"enable": True, "defaultRatio": ratio}, None, info()).text
    found = ratios.amplification({"enable": True, "resourceAmplificationRatio": {"cpu": cpu}}, text)
    assert found["cpu"] >= cpu - 1e-9
