import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.kernel.cgroup import classes
from cotenant.model.sample import Cgroup


@pytest.mark.parametrize(
    ("text", "glob", "qos"),
    [
        ("system.slice/nginx.service=LS", "system.slice/nginx.service", "LS"),
        ("/batch.slice/*=be", "batch.slice/*", "BE"),
        ("a=b=LSR", "a=b", "LSR"),
    ],
)
def test_match(text, glob, qos):
    assert classes.Match.parse(text) == classes.Match(glob, qos)


@pytest.mark.parametrize("text", ["", "a", "a=", "=LS", "/=LS", "a=XX"])
def test_other_text_is_refused(text):
    with pytest.raises(classes.BadMatch, match="LSE, LSR, LS, SYSTEM, BE"):
        classes.Match.parse(text)


def labels(paths, *matches, given_labels=None):
    known = classes.Classes([classes.Match.parse(match) for match in matches])
    known.labels = given_labels or {}
    return {path: label.class_ for path, label in known.assign(paths).items()}


def test_classes_are_inherited_and_the_later_match_wins():
    paths = ["a.slice", "a.slice/x.service", "a.slice/y.service", "b.slice"]
    assert labels(paths, "a.slice=BE", "a.slice/y*=LS") == {
        "a.slice": "offline",
        "a.slice/x.service": "offline",
        "a.slice/y.service": "online",
        "b.slice": None,
    }


def test_our_own_groups_say_their_class():
    paths = ["cotenant-be/make", "cotenant-ls/web", "cotenant-system/log", "cotenant-odd/x"]
    assert list(labels(paths).values()) == ["offline", "online", "system", None]
    assert classes.Classes().label("cotenantbe.slice/cotenant-make.scope") == classes.Label("offline")


def test_a_match_overrides_a_label_from_outside():
    outside = {"pod": classes.Label("online", "ns/name")}
    assert labels(["pod"], given_labels=outside) == {"pod": "online"}
    assert labels(["pod"], "pod=BE", given_labels=outside) == {"pod": "offline"}


def group(path, class_, ratio):
    return Cgroup(path=path, class_=class_, cpu_used_ratio=ratio)


def sums(*groups):
    return classes.cpu_sums({item.path: item for item in groups})


def test_cpu_time_of_nested_groups_counts_once():
    assert sums(
        group("a", "system", 0.5),
        group("a/b", "online", 0.2),
        group("a/b/c", "online", 0.1),
        group("a/d", "offline", 0.1),
    ) == pytest.approx({"system": 0.2, "online": 0.2, "offline": 0.1})


def test_an_unknown_group_between_does_not_hide_its_parent():
    assert sums(group("a", "online", 0.5), group("a/b", "online", None), group("a/b/c", "online", 0.2)) == {
        "online": 0.5
    }


@given(st.lists(st.tuples(st.sampled_from(["online", "offline", None]), st.floats(0, 1)), max_size=6))
@settings(max_examples=50, deadline=None)
def test_a_sum_is_never_negative(items):
    groups = [group("/".join("abcdef"[: n + 1]), class_, ratio) for n, (class_, ratio) in enumerate(items)]
    assert all(total >= 0 for total in sums(*groups).values())
