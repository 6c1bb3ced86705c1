"""Core-scheduling cookies as the executor gives and takes them, on a made-up kernel that keeps them by process."""

import contextlib
import errno
import itertools
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from cotenant.kernel import core_cookie, executor, journal, paths, undo
from cotenant.units.plan import PlanItem


class Cookies:
    """What the kernel keeps: a cookie a process, which its children have too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[int, int] = {}
        numbers = itertools.count(0x1000)
        monkeypatch.setattr(core_cookie, "read", lambda pid: self.of.get(pid, 0))
        monkeypatch.setattr(core_cookie, "create", lambda pid: self.of.update({pid: next(numbers)}))
        monkeypatch.setattr(core_cookie, "share", lambda leader, pid: self.of.update({pid: self.of[leader]}))
        monkeypatch.setattr(core_cookie, "clear", lambda pid: self.of.pop(pid, None))
        monkeypatch.setattr(
            core_cookie, "held", lambda root: {pid: cookie for pid, cookie in self.of.items() if cookie}
        )


@pytest.fixture
def cookies(monkeypatch: pytest.MonkeyPatch) -> Cookies:
    return Cookies(monkeypatch)


@pytest.fixture
def root(tmp_path: pathlib.Path) -> paths.Root:
    found = paths.Root()
    found.run_dir = tmp_path / "run"
    return found


@pytest.fixture
def pids() -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        started = [subprocess.Popen(["sleep", "900"]) for _ in range(3)]
        for process in started:
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield [process.pid for process in started]


def cookie(pid: int, group: str) -> PlanItem:
    return PlanItem(op="core_cookie", path=f"proc/{pid}", new=group, strategy="test", reason="a test")


def states(writer: executor.Executor, *items: PlanItem) -> list[str]:
    return [outcome.state for outcome in writer.apply(items)]


def test_a_group_shares_one_cookie_and_another_has_its_own(cookies: Cookies, root: paths.Root, pids: list[int]) -> None:
    writer = executor.Executor(root)
    first, second, third = pids
    items = [cookie(first, "offline"), cookie(second, "offline"), cookie(third, "g")]
    assert states(writer, *items) == ["written"] * 3
    assert cookies.of[first] == cookies.of[second] != cookies.of[third] != 0
    assert states(writer, *items) == ["same"] * 3
    assert states(executor.Executor(root), *items) == ["same"] * 3, "another process of ours finds the same"


def test_a_process_that_changes_its_group_no_longer_stands_for_the_old_one(
    cookies: Cookies, root: paths.Root, pids: list[int]
) -> None:
    writer = executor.Executor(root)
    first, second, third = pids
    states(writer, cookie(first, "a"), cookie(second, "b"))
    assert states(writer, cookie(first, "b"), cookie(third, "a")) == ["written", "written"]
    assert cookies.of[first] == cookies.of[second] != cookies.of[third]


def test_what_a_process_of_ours_started_keeps_the_group_and_is_restored(
    cookies: Cookies, root: paths.Root, pids: list[int]
) -> None:
    """The journal knows the parent alone; it has ended, and the cookie lives on in its child."""
    first, second, child = pids
    gone = subprocess.Popen(["sleep", "900"])
    states(executor.Executor(root), cookie(gone.pid, "offline"))
    cookies.of[child] = cookies.of[gone.pid]
    gone.kill()
    gone.wait()
    del cookies.of[gone.pid]
    cookies.of[first] = 0x77  # somebody else's
    assert states(executor.Executor(root), cookie(child, "offline"), cookie(second, "offline")) == ["same", "written"]
    assert cookies.of[second] == cookies.of[child]
    restored = undo.restore(executor.Executor(root))
    assert restored.complete
    assert sorted(entry.path for entry in restored.restored) == sorted(f"proc/{pid}" for pid in (second, child))
    assert cookies.of == {first: 0x77}
    assert not (root.run_dir / "journal").exists()


def test_a_cookie_of_anothers_making_stays(cookies: Cookies, root: paths.Root, pids: list[int]) -> None:
    cookies.of[pids[0]] = 0x77
    writer = executor.Executor(root)
    assert states(writer, cookie(pids[0], "offline"), cookie(pids[0], "")) == ["left_out", "left_out"]
    assert cookies.of == {pids[0]: 0x77}


def test_an_empty_name_takes_ours_away(cookies: Cookies, root: paths.Root, pids: list[int]) -> None:
    writer = executor.Executor(root)
    states(writer, cookie(pids[0], "offline"))
    assert states(writer, cookie(pids[0], "")) == ["written"]
    assert states(writer, cookie(pids[0], "")) == ["same"]
    assert cookies.of == {}


def test_a_cookie_that_does_not_go_is_said(
    cookies: Cookies, root: paths.Root, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = executor.Executor(root)
    states(writer, cookie(pids[0], "offline"))
    monkeypatch.setattr(core_cookie, "clear", lambda pid: None)
    assert states(writer, cookie(pids[0], "")) == ["not_taken"]


def test_a_refusal_is_told_once_a_task(
    cookies: Cookies, root: paths.Root, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel without core scheduling answers EINVAL, to every task in every round."""

    def refuse(pid: int) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(core_cookie, "read", refuse)
    writer = executor.Executor(root)
    assert states(writer, cookie(pids[0], "offline")) == ["refused"]
    assert states(writer, cookie(pids[0], "offline"), cookie(pids[1], "offline")) == ["held", "refused"]


def test_killed_between_the_cookie_and_its_line(
    cookies: Cookies, root: paths.Root, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal.Journal, "done", lambda *_: None)
    states(executor.Executor(root), cookie(pids[0], "offline"))
    monkeypatch.undo()
    again = Cookies(monkeypatch)
    again.of = dict(cookies.of)
    assert states(executor.Executor(root), cookie(pids[0], "offline"), cookie(pids[1], "offline")) == [
        "same",
        "written",
    ]
    assert undo.restore(executor.Executor(root)).complete
    assert again.of == {}


def test_a_policy_and_a_cookie_of_one_task_are_two_entries(cookies: Cookies, root: paths.Root, pids: list[int]) -> None:
    policy = PlanItem(op="set_policy", path=f"proc/{pids[0]}", new="batch", strategy="test", reason="a test")
    writer = executor.Executor(root)
    assert states(writer, policy, cookie(pids[0], "offline")) == ["written", "written"]
    assert len(writer.journal.entries) == 2
    assert undo.restore(executor.Executor(root)).complete
    assert states(executor.Executor(root), policy) == ["written"], "it had been put back"
    assert cookies.of == {}


def test_compaction_keeps_the_tasks_that_live_and_the_cookies_that_are_in_use(
    cookies: Cookies, root: paths.Root, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = executor.Executor(root)
    gone = [subprocess.Popen(["sleep", "900"]) for _ in range(2)]
    items = [cookie(gone[0].pid, "g"), cookie(gone[1].pid, "h"), cookie(pids[0], "offline")]
    states(writer, *items)
    cookies.of[pids[1]] = cookies.of[gone[0].pid]  # its child
    for process in gone:
        process.kill()
        process.wait()
        del cookies.of[process.pid]
    monkeypatch.setattr(journal.Journal, "is_large", lambda _: True)
    states(writer, cookie(pids[2], "offline"))
    kept = {entry.path for entry in executor.Executor(root).journal.entries.values()}
    assert kept == {f"proc/{pid}" for pid in (gone[0].pid, pids[0], pids[2])}
