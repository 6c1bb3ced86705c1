import pathlib

import msgspec
from tests.act.machine import Machine

from cotenant.model.snapshot import Snapshot
from cotenant.node.newcomers import Newcomers


def without_lists(seen: Snapshot, name: str) -> Snapshot:
    """Return the snapshot as it is while the kubelet does not list the containers of a pod."""
    groups = tuple(
        group
        if group.pod is None or group.pod.name != name
        else msgspec.structs.replace(
            group, containers=tuple(msgspec.structs.replace(child, container=None) for child in group.containers)
        )
        for group in seen.groups
    )
    return msgspec.structs.replace(seen, groups=groups)


def test_a_pod_is_asked_for_once_and_a_container_three_times(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    machine.pod("listed")
    newcomers = Newcomers()
    assert not newcomers.due(machine.look(), 0.0)
    machine.pod("pod")
    unknown = msgspec.structs.replace(
        machine.look(), groups=tuple(msgspec.structs.replace(g, pod=None, containers=()) for g in machine.look().groups)
    )
    assert newcomers.due(unknown, 1.0)
    assert not any(newcomers.due(unknown, now) for now in (1.0, 2.0, 20.0))
    fresh = without_lists(machine.look(), "pod")
    asked = [now for now in (30.0, 30.0, 30.5, 31.0, 32.0, 33.0, 34.0, 60.0) if newcomers.due(fresh, now)]
    assert asked == [30.0, 31.0, 33.0]
    assert not newcomers.due(machine.look(), 61.0)


def test_a_container_that_starts_anew_is_new(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    group = machine.pod("web")
    newcomers = Newcomers()
    assert not newcomers.due(machine.look(), 0.0)
    machine.group(f"{group}/{'f' * 64}")
    assert newcomers.due(machine.look(), 1.0)


def test_a_pod_that_ends_is_not_asked_about(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    group = machine.pod("web", deletionTimestamp="2026-11-30T00:00:00Z")
    machine.group(f"{group}/{'f' * 64}")
    assert not Newcomers().due(machine.look(), 0.0)
