"""Who is on the node, by the groups of a kernel double."""

from collections.abc import Callable

from tests.act.machine import Machine

from cotenant.model.policy import CgroupPath, HostApplication
from cotenant.node import presence


def test_pods_and_host_applications_by_the_path_of_their_group(machine: Callable[..., Machine]) -> None:
    node = machine()
    group = node.pod("web", "Burstable", "LS")
    node.group("kubepods/besteffort/poduid-unlisted")
    applications = (
        HostApplication(name="nginx", qos="LS", cgroup_path=CgroupPath(base="CgroupRoot", relative_path="host/nginx")),
        HostApplication(name="nowhere", qos="LS"),
    )
    seen = node.look()
    found = presence.of_snapshot(seen, applications)
    assert {path: pod.name for path, pod in found.pods.items()} == {group: "web"}
    assert found.applications == {"host/nginx": "nginx"}
    assert found.topology == seen.topology
    assert found.memory_bytes == seen.node.capacity_memory_bytes
