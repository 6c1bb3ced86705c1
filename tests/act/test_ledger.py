from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from tests.act.machine import Machine, use

from cotenant.act import ledger, withheld
from cotenant.model import policy
from cotenant.model.ledger import Entry
from cotenant.model.node import Usage
from cotenant.model.snapshot import Snapshot

Make = Callable[..., Machine]
BATCH = "kubernetes.io/batch-cpu"


def slo(**changes: Any) -> policy.NodeSlo:
    value = {"spec": {"resourceUsedThresholdWithBE": {"enable": True, **changes}}}
    return policy.decode(value)[0]


QUOTA, CPUSET, OFF = slo(cpuSuppressPolicy="cfsQuota"), slo(), slo(enable=False)


def asks(millicores: int) -> list[dict[str, Any]]:
    return [{"requests": {BATCH: str(millicores)}, "limits": {BATCH: str(millicores)}}]


def node_of(make: Make, online: float = 3200, sort: float = 1000, scan: float | None = 1000) -> Machine:
    """8 CPUs, 65 % for all: offline work may use 5200 less what online work uses."""
    machine = make(cpus=8)
    machine.pod("web", "Burstable", "LS", namespace="shop")
    machine.pod("sort", "BestEffort", "BE", containers=asks(4000), namespace="batch")
    machine.pod("scan", "BestEffort", "BE", namespace="batch")
    pods = {"shop/web": use(online), "batch/sort": use(sort), "batch/scan": use(scan)}
    machine.used = Usage(node=use(online + sort + (scan or 0)), system=use(0), pods=pods)  # type: ignore[attr-defined]
    return machine


def look(machine: Machine, journal: Mapping[str, str | None] | None = None) -> Snapshot:
    return machine.look(usage=machine.used, journal=journal)  # type: ignore[attr-defined]


def entries(seen: Snapshot, rules: policy.NodeSlo, quotas: Mapping[str, float] | None) -> dict[str, Entry]:
    return {entry.key: entry for entry in ledger.entries(seen, rules, quotas)}


def test_only_offline_pods_have_entries_and_their_namespace_is_the_account(machine: Make) -> None:
    found = entries(look(node_of(machine)), OFF, None)
    assert found == {
        "batch/sort": Entry(
            key="batch/sort", account="batch", asked_millicores=4000, delivered_millicores=1000, suppressed_millicores=0
        ),
        "batch/scan": Entry(
            key="batch/scan", account="batch", asked_millicores=1000, delivered_millicores=1000, suppressed_millicores=0
        ),
    }


def test_on_fast_cpus_less_time_is_what_was_asked_for(machine: Make) -> None:
    seen = look(node_of(machine))
    fast = msgspec.structs.replace(seen, node=msgspec.structs.replace(seen.node, cpu_normalization_ratio=Fraction(2)))
    found = entries(fast, OFF, None)
    assert {key: entry.asked_millicores for key, entry in found.items()} == {"batch/sort": 2000, "batch/scan": 1000}


def test_by_cpu_set_what_is_missing_from_the_request_is_lost_while_suppression_binds(machine: Make) -> None:
    found = entries(look(node_of(machine, online=3200)), CPUSET, {})  # may use 2000, uses 2000
    assert found["batch/sort"].suppressed_millicores == 3000
    assert found["batch/scan"].suppressed_millicores is None  # nobody knows what it would have used
    assert found["batch/scan"].asked_millicores is None
    found = entries(look(node_of(machine, online=1000)), CPUSET, {})  # may use 4200, uses 2000
    assert {entry.suppressed_millicores for entry in found.values()} == {0}


def test_by_quota_throttled_time_is_lost_but_never_more_than_was_asked_for(machine: Make) -> None:
    made = node_of(machine)
    quota = made.path("cpu", "kubepods/besteffort", "cpu.cfs_quota_us")
    seen = look(made, {quota: "-1"})
    found = entries(seen, QUOTA, {"kubepods/besteffort": 1000.0})
    assert found["batch/sort"].suppressed_millicores == 500
    assert found["batch/scan"].suppressed_millicores == 500
    assert found["batch/scan"].asked_millicores == 1500
    assert entries(seen, QUOTA, {"kubepods/besteffort": 9000.0})["batch/sort"].suppressed_millicores == 3000
    assert entries(seen, QUOTA, None)["batch/sort"].suppressed_millicores is None  # the first round


def test_a_quota_of_the_owner_is_no_loss_to_us(machine: Make) -> None:
    seen = look(node_of(machine), journal={})
    found = entries(seen, QUOTA, {"kubepods/besteffort": 1000.0, "kubepods/besteffort/poduid-scan": 300.0})
    assert {entry.suppressed_millicores for entry in found.values()} == {0}


def test_without_usage_nothing_is_known(machine: Make) -> None:
    made = node_of(machine, scan=None)
    found = entries(look(made), CPUSET, {})
    assert found["batch/scan"].delivered_millicores is None
    assert found["batch/sort"].suppressed_millicores is None  # whether suppression binds is not known
    made.used = None  # type: ignore[attr-defined]
    assert entries(look(made), CPUSET, {})["batch/sort"].delivered_millicores is None


def test_throttled_time_becomes_a_rate(machine: Make) -> None:
    made, seen = node_of(machine), withheld.Withheld()
    stat = made.path("cpu", "kubepods/besteffort", "cpu.stat")
    made.extra[stat] = "nr_periods 1\nthrottled_time 1000000000\n"
    assert seen.of(look(made), 10.0) is None
    made.extra[stat] = "nr_periods 1\nthrottled_time 4000000000\n"
    rates = seen.of(look(made), 12.0)
    assert rates is not None
    assert rates["kubepods/besteffort"] == pytest.approx(1500)
    made.extra[stat] = "nr_periods 1\nthrottled_time 0\n"  # the group was made anew
    rates = seen.of(look(made), 13.0)
    assert rates is not None
    assert rates["kubepods/besteffort"] == 0


def test_v2_counts_in_microseconds(machine: Make) -> None:
    made, seen = machine("mainline-v2"), withheld.Withheld()
    made.pod("sort", "BestEffort", "BE")
    stat = made.path("cpu", "kubepods/besteffort", "cpu.stat")
    for at, text in ((1.0, "0"), (2.0, "250000")):
        made.extra[stat] = f"throttled_usec {text}\n"
        rates = seen.of(made.look(), at)
    assert rates is not None
    assert rates["kubepods/besteffort"] == pytest.approx(250)
