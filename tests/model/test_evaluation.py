from cotenant.model import evaluation


def test_a_worse_bucket_is_more_severe_and_the_unknown_one_least() -> None:
    worst_first = ["severe", "high", "medium", "low", "none", "unknown"]
    assert sorted(evaluation.BUCKETS, key=evaluation.severity_of, reverse=True) == worst_first
    assert evaluation.severity_of("of another version") == evaluation.severity_of("unknown") == -1
