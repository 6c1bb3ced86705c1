from cotenant.model.latency import P99, P999, Quantile, ServiceLatency


def test_a_quantile_that_was_not_measured_is_unknown_with_a_reason() -> None:
    seen = ServiceLatency(service="shop", source="log", quantiles=(Quantile(quantile=P99, seconds=0.02),))
    assert seen.p99_seconds == 0.02
    assert seen.at(P999).seconds is None
    assert seen.at(P999).missing is not None
