import os

import pytest

from cotenant.kernel.cgroup import tree


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("system.slice", True),
        ("docker", True),
        ("cotenant-bench", True),
        ("docker/" + "a" * 64, True),
        ("system.slice/nginx.service", True),
        ("system.slice/boot.mount", False),
        ("system.slice/nginx.service/worker", False),
        ("kubepods/burstable", True),
        ("kubelet.slice/kubelet-kubepods.slice/x", True),
        ("batch/scan", True),
        ("batch/a/b", True),
        ("batch/a/b/c", False),
        ("cotenant-be", False),
        ("cotenant-be/make", True),
    ],
)
def test_what_matters(path, expected):
    assert tree.matters(path) is expected


def look(top, **options):
    return tree.Tree([os.fspath(top)], **{"live": True, "wanted": lambda path: False, "deep": (), **options})


def test_parents_come_first_and_ends_are_not_looked_into(tmp_path):
    for path in ("b.slice/x.service/inner.slice", "a.slice/user@1.service/app.slice", "cotenant-ls/web/below"):
        (tmp_path / path).mkdir(parents=True)
    assert look(tmp_path).groups(0.0) == [
        "a.slice",
        "b.slice",
        "a.slice/user@1.service",
        "b.slice/x.service",
        "cotenant-ls/web",
        "a.slice/user@1.service/app.slice",
    ]


def test_what_is_wanted_is_looked_for_below_an_end(tmp_path):
    (tmp_path / "a.service/x/y").mkdir(parents=True)
    found = look(tmp_path, wanted=lambda path: path == "a.service/x/y", deep=("a.service/x/y",))
    assert found.groups(0.0) == ["a.service", "a.service/x/y"]


def test_a_new_group_is_found_by_the_link_count_of_its_parent(tmp_path):
    (tmp_path / "a.slice").mkdir()
    found = look(tmp_path)
    found.groups(0.0)
    (tmp_path / "a.slice/b.service").mkdir()
    if (tmp_path / "a.slice").stat().st_nlink < 3:
        pytest.skip("this file system does not count subdirectories as links; cgroupfs does")
    assert found.groups(1.0) == ["a.slice", "a.slice/b.service"]


def test_a_group_in_one_of_several_hierarchies_is_found_when_its_turn_comes(tmp_path):
    tops = [tmp_path / name for name in "abcd"]
    for top in tops:
        top.mkdir()
    if tmp_path.stat().st_nlink < 3:
        pytest.skip("this file system does not count subdirectories as links; cgroupfs does")
    found = tree.Tree([os.fspath(top) for top in tops], live=True, wanted=lambda path: False, deep=())
    found.groups(0.0)
    (tops[0] / "x").mkdir()
    assert found.groups(1.0) == ["x"]
    (tops[2] / "y").mkdir()
    assert ["x", "y"] in [found.groups(float(second)) for second in (2, 3, 4)]


def test_a_swap_of_groups_is_found_by_the_next_full_look(tmp_path):
    (tmp_path / "a.slice").mkdir()
    found = look(tmp_path)
    found.groups(0.0)
    (tmp_path / "a.slice").rename(tmp_path / "b.slice")
    assert found.groups(tree.RESCAN_SECONDS + 1) == ["b.slice"]


def test_the_number_of_groups_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(tree, "MAX_GROUPS", 3)
    for name in "abcde":
        (tmp_path / name).mkdir()
    found = look(tmp_path)
    assert found.groups(0.0) == ["a", "b", "c"]
    assert found.left_out == 2
