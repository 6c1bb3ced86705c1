"""Who is on the node, and what the node is made of, as of the last look."""

from collections.abc import Mapping

import msgspec

from cotenant.act import host_application
from cotenant.model.node import Topology
from cotenant.model.pod import Pod
from cotenant.model.policy import HostApplication
from cotenant.model.snapshot import Snapshot


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """Pods, and names of host applications, by the path of their group."""

    topology: Topology = Topology(cpus=())
    memory_bytes: int | None = None
    """All the memory there is; None where the kernel does not say it."""
    pods: Mapping[str, Pod] = {}
    applications: Mapping[str, str] = {}


def of_snapshot(seen: Snapshot, applications: tuple[HostApplication, ...]) -> Presence:
    """Return who is there; a host application without a group of its own is not."""
    places = ((host_application.group_of(seen, app), app.name) for app in applications)
    return Presence(
        topology=seen.topology,
        memory_bytes=seen.node.capacity_memory_bytes,
        pods={group.path: group.pod for group in seen.groups if group.pod is not None},
        applications={path: name for path, name in places if path is not None},
    )
