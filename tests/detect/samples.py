"""Samples by the few values that a test is about."""

from typing import Any

from cotenant.detect import engine, parser, rules
from cotenant.model import evaluation, sample
from cotenant.units import histogram

HEAD = "apiVersion: cotenant.io/v1alpha1\nkind: DetectionRuleConfig\nmetadata: {name: test}\n"


def at(second: float, node: str = "n1", **groups: Any) -> sample.Sample:
    """Return the sample that ends at a second of uptime; groups as in JSON (``psi={"io_some_ratio": 0.3}``)."""
    value = {
        "node": node,
        "boot_id": "b1",
        "uptime_s": 1000.0 + second,
        "time": f"2026-11-30T{int(second) // 3600:02}:{int(second) // 60 % 60:02}:{int(second) % 60:02}.000Z",
        "period_s": 1.0,
        **groups,
    }
    return sample.decode(sample._encoder.encode(value))


def psi(second: float, value: float | None, **more: Any) -> sample.Sample:
    """Return the sample whose only value is the time stalled on I/O."""
    return at(second, psi={"io_some_ratio": value}, **more)


def series(values: list[float | None], start: int = 0) -> list[sample.Sample]:
    """Return one such sample a second."""
    return [psi(start + second, value) for second, value in enumerate(values)]


def counts(**by_latency: int) -> dict[str, float]:
    """Return a histogram in JSON: ``counts(_100=50, _90000=2)`` is 50 requests of 100 µs and 2 of 90 ms."""
    made = histogram.Histogram()
    for latency, count in by_latency.items():
        made.add(float(latency.lstrip("_")), count)
    return made.to_json()


def rule(signals: str = "", fallback: str = "", spec: str = "", others: str = "") -> rules.Rules:
    """Return rules with one enabled detection, ``ioCongestion``, (``signal normal threshold saturation, …``)."""
    lists = "".join(
        f"      {key}: [{_items(text)}]\n" for key, text in (("signals", signals), ("fallbackSignals", fallback))
    )
    disabled = "".join(
        f"    {name}: {{enabled: false}}\n"
        for name in rules.DETECTIONS
        if name != "ioCongestion" and name not in others
    )
    text = HEAD + f"spec:\n  detections:\n    ioCongestion:\n      weight: 1\n{lists}{disabled}{others}{spec}"
    return parser.parse(text, "test.yaml")[0].rules


def _items(text: str) -> str:
    items = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, normal, threshold, saturation = item.split()
        items.append(f"{{signal: {name}, normal: {normal}, threshold: {threshold}, saturation: {saturation}}}")
    return ", ".join(items)


def run(by: rules.Rules, taken: list[sample.Sample]) -> list[evaluation.Evaluation]:
    """Return one evaluation for each sample."""
    judge = engine.Engine(by)
    return [judge.evaluate(one) for one in taken]


def io(found: evaluation.Evaluation) -> evaluation.Detection:
    return found.detections["ioCongestion"]
