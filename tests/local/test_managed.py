import pytest

from cotenant.kernel.cgroup.classes import Match
from cotenant.local import managed
from cotenant.model.sample import Cgroup

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
