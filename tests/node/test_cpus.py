"""What the kubelet says of CPUs, by its state and its configuration, and what is given out here."""

import json
import pathlib
from collections.abc import Callable

import pytest
from tests.act.machine import Machine

from cotenant.kernel import paths
from cotenant.model.node import Cpu, Topology
from cotenant.node.cpus import UNKNOWN, Assignments
from cotenant.node.errors import KubeletUnreachable
from cotenant.node.kubelet import Kubelet, KubeletConfiguration, Settings
from cotenant.units.clock import ManualClock

CPUS = Topology(cpus=tuple(Cpu(id=cpu, core=cpu % 2) for cpu in range(4)))
LIMITS = {"limits": {"cpu": "2", "memory": "1Gi"}}


class Told(Kubelet):
    """A kubelet that says what the test wants."""

    def __init__(self) -> None:
        super().__init__(Settings())
        self.says: KubeletConfiguration | None = None

    def configuration(self) -> KubeletConfiguration:
        if self.says is None:
            raise KubeletUnreachable("https://127.0.0.1:10250/configz: refused")
        return self.says


@pytest.fixture
def told() -> Told:
    return Told()


def made(told: Told, tmp_path: pathlib.Path, clock: ManualClock | None = None, give: bool = True) -> Assignments:
    return Assignments(paths.Root(tmp_path), told, clock or ManualClock(), "/k", give)


def keep(tmp_path: pathlib.Path, **state: object) -> None:
    (tmp_path / "k").mkdir(exist_ok=True)
    (tmp_path / "k/cpu_manager_state").write_text(json.dumps(state))


def test_nothing_heard_is_nothing_known(told: Told, tmp_path: pathlib.Path) -> None:
    cpus = made(told, tmp_path)
    cpus.refresh()
    assert cpus.policy is None
    assert cpus.problem == UNKNOWN
    cpus.refresh()
    assert cpus.problem == UNKNOWN
    assert cpus.topology(CPUS).stated is False


def test_the_kubelets_own_state_counts_more_than_its_configuration(told: Told, tmp_path: pathlib.Path) -> None:
    told.says = KubeletConfiguration(cpu_manager_policy="none")
    keep(tmp_path, policyName="static", entries={"u1": {"c": "3"}})
    cpus = made(told, tmp_path)
    cpus.refresh()
    found = cpus.topology(CPUS)
    assert (cpus.policy, found.kubelet_policy, found.stated) == ("static", "static", True)
    assert (found.kubelet_pinned, found.kubelet_pods) == (frozenset({3}), {"u1": frozenset({3})})


@pytest.mark.parametrize(
    ("configuration", "reserved"),
    [
        (KubeletConfiguration(cpu_manager_policy="static", reserved_system_cpus="1,3"), {1, 3}),
        (KubeletConfiguration(cpu_manager_policy="static", kube_reserved={"cpu": "500m"}), {0}),
        (
            KubeletConfiguration(
                cpu_manager_policy="static",
                kube_reserved={"cpu": "1"},
                system_reserved={"cpu": "100m", "memory": "1Gi"},
            ),
            {0, 2},
        ),
        (KubeletConfiguration(cpu_manager_policy="none", reserved_system_cpus="1"), set()),
        (KubeletConfiguration(cpu_manager_policy="static", reserved_system_cpus="x"), set()),
    ],
)
def test_reserved_cpus(
    told: Told, tmp_path: pathlib.Path, configuration: KubeletConfiguration, reserved: set[int]
) -> None:
    told.says = configuration
    cpus = made(told, tmp_path)
    cpus.refresh()
    assert cpus.topology(CPUS).kubelet_reserved == reserved


def test_a_kubelet_that_is_away_and_a_torn_state_leave_what_was_known(told: Told, tmp_path: pathlib.Path) -> None:
    clock = ManualClock()
    told.says = KubeletConfiguration(cpu_manager_policy="static", reserved_system_cpus="0")
    keep(tmp_path, policyName="static", entries={"u1": {"c": "3"}})
    cpus = made(told, tmp_path, clock)
    cpus.refresh()
    told.says = None
    (tmp_path / "k/cpu_manager_state").write_text("{")
    clock.advance(61)
    cpus.refresh()
    found = cpus.topology(CPUS)
    assert (found.kubelet_reserved, found.kubelet_pinned) == ({0}, {3})
    assert cpus.problem


def test_cpus_are_kept_from_round_to_round_and_told_who_has_none(
    machine: Callable[..., Machine],
    told: Told,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = machine()
    node.pod("b", "Guaranteed", "LSR", containers=[LIMITS])
    node.pod("odd", "Burstable", "LSE", containers=[{"requests": {"cpu": "100m"}}])
    cpus = made(told, tmp_path)
    seen = cpus.assign(node.look())
    own = next(pod for pod in seen.pods if pod.name == "b").resource_status.cpuset
    assert own
    node.pod("a", "Guaranteed", "LSE", containers=[LIMITS])
    again = cpus.assign(node.look())
    assert next(pod for pod in again.pods if pod.name == "b").resource_status.cpuset == own
    assert cpus.placement.degraded == {"default/odd": "it asks for 100m: whole CPUs only"}
    assert caplog.text.count("default/odd is served as LS") == 1


def test_switched_off_everybody_is_told_why(
    machine: Callable[..., Machine],
    told: Told,
    tmp_path: pathlib.Path,
) -> None:
    node = machine()
    node.pod("b", "Guaranteed", "LSR", containers=[LIMITS])
    cpus = made(told, tmp_path, give=False)
    seen = cpus.assign(node.look())
    assert seen.pods[0].resource_status.cpuset == ""
    assert "--no-whole-cores" in cpus.placement.degraded["default/b"]
