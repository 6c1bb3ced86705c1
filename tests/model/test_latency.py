import pytest

from cotenant.model.latency import P99, P999, Quantile, ServiceLatency, change_ratio


def test_a_quantile_that_was_not_measured_is_unknown_with_a_reason() -> None:
    seen = ServiceLatency(service="shop", source="log", quantiles=(Quantile(quantile=P99, seconds=0.02),))
    assert seen.p99_seconds == 0.02
    assert seen.p999_seconds is None
    assert seen.at(P999).missing is not None


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        (Quantile(quantile=P99, seconds=0.02), Quantile(quantile=P99, seconds=0.03), 1.5),
        (Quantile(quantile=P99, seconds=0.02), Quantile(quantile=P99, seconds=1.0, at_least=True), 50),
        (Quantile(quantile=P99, seconds=1.0, at_least=True), Quantile(quantile=P99, seconds=2.0), None),
        (Quantile(quantile=P99), Quantile(quantile=P99, seconds=2.0), None),
        (Quantile(quantile=P99, seconds=0.0), Quantile(quantile=P99, seconds=2.0), None),
    ],
)
def test_a_change_needs_both_values(before: Quantile, after: Quantile, ratio: float | None) -> None:
    got = change_ratio(before, after)
    assert got == (None if ratio is None else pytest.approx(ratio))
