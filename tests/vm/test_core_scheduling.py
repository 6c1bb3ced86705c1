"""Core scheduling on a kernel that has it: cookies by the product's own path, and what they do to sibling threads."""

from typing import Any

import pytest
from tests.vm.test_kernels import booted

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return booted("core", 2, "cookies", tmp_path_factory.mktemp("vm"))


def test_check_finds_it(guest: dict[str, Any]) -> None:
    assert guest["check"]["features"]["core-scheduling"] == "available"
    assert guest["smt"] == [[0, 0], [1, 0], [2, 1], [3, 1]]


def test_offline_pods_share_a_cookie_that_online_pods_have_not(guest: dict[str, Any]) -> None:
    cookies = guest["cookies"]
    assert set(cookies["before"].values()) == {0}
    assert cookies["enforced"][:2] == [0, ""]
    assert ["core_cookie", "offline"] in cookies["enforced"][2]
    given = cookies["given"]
    assert given["be"] == given["second"] != 0
    assert given["ls"] == given["lse"] == 0


def test_a_child_has_its_parents_cookie_and_a_second_round_changes_nothing(guest: dict[str, Any]) -> None:
    cookies = guest["cookies"]
    assert cookies["inherited"] == cookies["given"]["be"]
    assert cookies["again"] == [0, cookies["given"], cookies["inherited"]]


def test_switching_the_policy_off_takes_them_away_and_on_gives_them_anew(guest: dict[str, Any]) -> None:
    cookies = guest["cookies"]
    assert cookies["off"][:2] == [0, ""]
    assert set(cookies["off"][2].values()) == {0}
    anew = cookies["anew"]
    assert anew["be"] == anew["second"] == anew["child"] != 0
    assert anew["ls"] == 0


def test_restore_takes_it_from_a_child_whose_parent_has_ended(guest: dict[str, Any]) -> None:
    cookies = guest["cookies"]
    assert cookies["orphan"] == cookies["anew"]["be"]
    assert (cookies["restored"]["status"], cookies["restored"]["left"]) == (0, [])
    assert [path for path in cookies["restored"]["paths"] if path.startswith("proc/")] == [cookies["child"]]
    assert cookies["after"] == [0, 0]


def test_what_cookies_do_to_sibling_threads(guest: dict[str, Any]) -> None:
    """Without them both threads work at once; with them the core is one kind's at a time, and one thread idles."""
    siblings = guest["siblings"]
    print(siblings)
    assert siblings["without"]["verdict"] == "not expelled"
    assert siblings["without"]["forced idle usec"] == 0
    assert siblings["with"]["verdict"] == "expelled", siblings["with"]["reason"]
    assert siblings["with"]["forced idle usec"] > 1_000_000, "the thread beside online work was kept idle"
    assert siblings["left"] == 0
