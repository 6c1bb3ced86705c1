"""When a value is told, and how it is taken back."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.manager.overcommit import names, publication, strategy
from cotenant.manager.overcommit.pods import PodFacts

DEFAULT = strategy.of({}, {}, {}).strategy
CPU, MEMORY = names.BATCH["cpu"], names.BATCH["memory"]


def batch_pod(millicores: int, memory_bytes: int = 0, name: str = "job") -> PodFacts:
    return PodFacts(
        key=f"default/{name}",
        node="n1",
        high_priority=False,
        prod=False,
        request={"cpu": 0, "memory": 0},
        extended={CPU: millicores, MEMORY: memory_bytes},
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (100, 110, False),
        (100, 111, True),
        (100, 90, False),
        (100, 89, True),
        (0, 0, False),
        (0, 1, True),
        (None, 0, True),
        (0, None, True),
        (None, None, False),
    ],
)
def test_a_change_is_told_beyond_a_tenth(old: int | None, new: int | None, told: bool) -> None:
    assert publication.differs(old, new, Fraction(1, 10)) is told


def test_any_value_is_due_again_after_the_update_time() -> None:
    assert publication.is_due({CPU: 1000}, {CPU: 1000}, 301, DEFAULT)
    assert not publication.is_due({CPU: 1000}, {CPU: 1000}, 300, DEFAULT)
    assert not publication.is_due({CPU: 1000}, {CPU: 1000}, None, DEFAULT)
    assert publication.patch({CPU: 1000}, {CPU: 1000}) is None  # due, and yet nothing to write


def test_both_capacity_and_allocatable_are_written() -> None:
    body = publication.patch({CPU: 1000, MEMORY: 5}, {CPU: 900, MEMORY: 5})
    assert body == {"status": {"capacity": {CPU: "900"}, "allocatable": {CPU: "900"}}}


def test_what_is_no_longer_offered_is_removed() -> None:
    body = publication.patch({CPU: 1000}, {})
    assert body == {"status": {"capacity": {CPU: None}, "allocatable": {CPU: None}}}


def test_a_value_that_stands_in_one_place_only_is_written_again() -> None:
    assert publication.patch({CPU: 1000}, {CPU: 1000}, torn=[CPU]) == {
        "status": {"capacity": {CPU: "1000"}, "allocatable": {CPU: "1000"}}
    }


def test_what_schedulers_share_is_told_with_it() -> None:
    body = publication.patch({}, {CPU: 7}, origin={CPU: 10})
    assert body is not None
    assert body["metadata"]["annotations"] == {
        names.ORIGIN_ANNOTATION: '{"resources":{"kubernetes.io/batch-cpu":"10"}}'
    }
    assert (
        publication.patch({CPU: 7}, {CPU: 7}, origin={CPU: 10}, had_origin=publication.origin_text({CPU: 10})) is None
    )


def test_draining_leaves_room_for_those_that_are_there_only() -> None:
    published = {CPU: 10_000, MEMORY: 50}
    assert publication.drained(published, [batch_pod(3_000, 80)]) == {CPU: 3_000, MEMORY: 50}
    assert publication.drained(published, []) == {}
    assert publication.drained({}, [batch_pod(3_000)]) == {}


def test_what_falls_most_is_most_urgent() -> None:
    assert publication.falls({CPU: 100, MEMORY: 100}, {CPU: 50, MEMORY: 200}) == 0.5
    assert publication.falls({CPU: 100}, {CPU: 150}) == 0
    assert publication.falls({CPU: 100}, {}) == 1


values = st.dictionaries(st.sampled_from(names.PUBLISHED), st.integers(0, 10**12))


@settings(max_examples=30)
@given(values, values, st.sets(st.sampled_from(names.PUBLISHED)))
def test_a_patch_does_what_it_says(published: dict[str, int], new: dict[str, int], torn: set[str]) -> None:
    body = publication.patch(published, new, torn)
    capacity = dict(published)
    for name, text in ((body or {}).get("status") or {"capacity": {}})["capacity"].items():
        if text is None:
            capacity.pop(name, None)
        else:
            capacity[name] = int(text)
    assert capacity == new
    assert publication.patch(new, new) is None


@settings(max_examples=30)
@given(values, st.lists(st.builds(batch_pod, st.integers(0, 10**6), st.integers(0, 10**12)), max_size=5))
def test_draining_only_takes_away_and_ends(published: dict[str, int], pods: list[PodFacts]) -> None:
    left = publication.drained(published, pods)
    assert all(left[name] <= published[name] for name in left)
    assert publication.drained(left, pods) == left
    assert publication.drained(left, []) == {}
