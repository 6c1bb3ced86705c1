import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.detect import truth
from cotenant.detect.truth import EARLY_SECONDS, GAP_SECONDS, LATE_SECONDS, Episode, Place


def calm(until: int, every: int = 5, p99: float = 0.01) -> list[tuple[float, float]]:
    return [(float(at), p99) for at in range(0, until, every)]


def slow(points: list[tuple[float, float]], start: float, end: float, p99: float = 0.1) -> list[tuple[float, float]]:
    return [(at, p99 if start <= at <= end else value) for at, value in points]


def test_slow_is_twice_the_usual_or_past_the_target() -> None:
    points = slow(calm(600), 100, 200)
    assert truth.of_points({("n1", "shop"): points}, None).of("n1") == (Episode(100, 200),)
    assert truth.of_points({("n1", "shop"): points}, 0.2).of("n1") == ()
    assert truth.of_points({("n1", "shop"): points}, 0.05).of("n1") == (Episode(100, 200),)


def test_one_slow_value_is_no_episode_and_near_ones_are_one() -> None:
    assert truth.of_points({("n1", "shop"): slow(calm(600), 100, 100)}, None).of("n1") == ()
    points = slow(slow(calm(600), 100, 120), 140, 160)
    assert truth.of_points({("n1", "shop"): points}, None).of("n1") == (Episode(100, 160),)
    points = slow(slow(calm(600), 100, 120), 200, 220)
    assert truth.of_points({("n1", "shop"): points}, None).of("n1") == (Episode(100, 120), Episode(200, 220))


def test_services_of_one_node_are_taken_together_and_nodes_apart() -> None:
    services = {
        ("n1", "shop"): slow(calm(600), 100, 150),
        ("n1", "pay"): slow(calm(600), 140, 200),
        ("n2", "shop"): slow(calm(600), 300, 350),
    }
    found = truth.of_points(services, None)
    assert found.of("n1") == (Episode(100, 200),)
    assert found.of("n2") == (Episode(300, 350),)
    assert found.of("n3") == ()
    assert found.count == 2
    everywhere = truth.of_points({("", "shop"): slow(calm(600), 100, 150)}, None)
    assert everywhere.of("n7") == (Episode(100, 150),)


@pytest.mark.parametrize(
    ("at", "number"),
    [
        (100 - EARLY_SECONDS - 1, None),
        (100 - EARLY_SECONDS, 0),
        (150, 0),
        (200 + LATE_SECONDS, 0),
        (200 + LATE_SECONDS + 1, None),
        (400, 1),
        (1000, None),
    ],
)
def test_what_belongs_to_an_episode(at: float, number: int | None) -> None:
    assert Place((Episode(100, 200), Episode(390, 410)), 0.0).near(at) == number


def test_rules_that_look_back_trigger_later() -> None:
    place = Place((Episode(100, 200),), 60.0)
    assert place.near(200 + LATE_SECONDS + 60) == 0
    assert place.near(200 + LATE_SECONDS + 61) is None


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([0.01, 0.1])), max_size=60))
def test_episodes_are_ascending_and_apart(points: list[tuple[int, float]]) -> None:
    ordered = sorted({float(at): p99 for at, p99 in points}.items())
    episodes = truth.of_points({("n", "s"): ordered}, 0.05).of("n")
    for before, after in itertools.pairwise(episodes):
        assert before.end + GAP_SECONDS < after.start
    assert all(episode.start < episode.end for episode in episodes)
