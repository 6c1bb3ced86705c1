import errno
import os
import pathlib
import shutil
from collections.abc import Sequence

import pytest
from tests.kernel.tree import Tree

from cotenant.kernel import executor, outcome
from cotenant.kernel.cgroup.classes import Match
from cotenant.local import errors, groups, managed
from cotenant.model.sample import Cgroup
from cotenant.units.plan import PlanItem

MATCHES = (Match.parse("system.slice/nginx.service=LS"), Match.parse("batch/*=BE"))


def paths(*names: str, records: dict[str, str] | None = None) -> dict[str, str]:
    found = managed.units([Cgroup(path=name) for name in names], MATCHES, records or {})
    return {group.path: group.pod.qos for group in found.groups if group.pod}


def test_groups_of_run_and_matched_ones_are_managed_and_nobody_else() -> None:
    assert paths(
        "system.slice", "system.slice/nginx.service", "batch", "batch/a", "cotenant-be", "cotenant-be/make",
        "cotenant-lsr/db", "kubepods/besteffort/podx",
    ) == {
        "system.slice/nginx.service": "LS", "batch/a": "BE", "cotenant-be/make": "BE", "cotenant-lsr/db": "LSR",
    }  # fmt: skip


def test_a_group_below_a_managed_one_of_its_class_is_part_of_it() -> None:
    assert paths("batch/a", "batch/a/b", "batch/a/b/c") == {"batch/a": "BE"}


def test_a_record_says_what_a_group_elsewhere_is() -> None:
    assert paths("user.slice/x.scope", records={"user.slice/x.scope": "BE"}) == {"user.slice/x.scope": "BE"}


class Racing(executor.Executor):
    """One before whose first write another command ends and takes the class directory with it, as the last of it."""

    directory: pathlib.Path
    raced = False

    def apply(self, items: Sequence[PlanItem]) -> list[outcome.Outcome]:
        if not self.raced:
            self.raced = True
            shutil.rmtree(self.directory)
        return super().apply(items)


def test_a_class_directory_that_goes_while_a_command_starts_is_made_again(tmp_path: pathlib.Path) -> None:
    def write(descriptor: int, data: bytes) -> int:
        file = pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if file.name == "cpuset.cpus" and not (file.parent.parent / file.name).read_text().strip():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # as a kernel: more than the group around
        return os.write(descriptor, data)

    tree = Tree(tmp_path, v1=("cpu", "cpuset"))
    top = tmp_path / "sys/fs/cgroup/cpuset"
    for place, text in ((top, "0-1"), (top / "cotenant-be", "0-1"), (top / "cotenant-be/other", "0-1")):
        for name in ("cpuset.cpus", "cpuset.mems", "cgroup.procs"):
            tree.file(str((place / name).relative_to(tmp_path)), "" if name == "cgroup.procs" else text)
    tree.file("sys/fs/cgroup/cpu/cgroup.procs")
    tree.file("sys/fs/cgroup/cpu/cpu.shares", "1024")
    racing = Racing(tree.root, write=write)
    racing.directory = top / "cotenant-be"
    groups.Groups(tree.root, writer=racing).create("cotenant-be/make", "BE", groups.UNLIMITED, str(os.getpid()))
    assert (top / "cotenant-be/make/cpuset.cpus").read_text() == "0-1\n"


class Refusing(executor.Executor):
    """One whose groups the kernel refuses, and which holds what was refused back after that."""

    tried = False

    def apply(self, items: Sequence[PlanItem]) -> list[outcome.Outcome]:
        answer = outcome.Outcome(items[0], "held") if self.tried else outcome.Outcome(items[0], "denied", "no right")
        self.tried = True
        return [answer]


def test_a_group_that_is_refused_again_and_again_is_told_by_the_first_reason(tmp_path: pathlib.Path) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file("sys/fs/cgroup/cpu/cpu.shares", "1024")
    refused = groups.Groups(tree.root, writer=Refusing(tree.root))
    with pytest.raises(errors.GroupError, match="no right"):
        refused.create("cotenant-be/make", "BE", groups.UNLIMITED, str(os.getpid()))


@pytest.mark.parametrize(
    ("group", "directory"),
    [
        ("cotenant-be/make", "cotenant-be"),
        ("cotenantbe.slice/cotenant-make.scope", "cotenantbe.slice"),
        ("batch/a", None),
        ("cotenant-ls/web", None),
    ],
)
def test_offline_commands_share_one_quota_by_their_directory(group: str, directory: str | None) -> None:
    units = managed.units([Cgroup(path=group)], MATCHES, {})
    assert units.directory == directory
    assert units.groups[0].qos == ("BestEffort" if directory else "Burstable")
