"""What a pod gets while it starts: its level before the first container, and each container's CPUs and limits."""

import pathlib

import msgspec

from cotenant.act import batch_resources, cgroup, cpu_burst, cpu_suppress, cpuset, planning
from cotenant.act.draft import Draft, merge
from cotenant.kernel import enforcing
from cotenant.model.pod import BATCH_CPU, KubeQos, Pod
from cotenant.model.pod_list import decode
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import PodGroup, Snapshot
from cotenant.node import nri
from cotenant.node.kubelet import PodSource
from cotenant.node.policy import Policy
from cotenant.units import cpulist
from cotenant.units.plan import PlanItem

STRATEGIES = ("group_identity",)
"""Only the level is written while a pod starts: its other files belong to containers that are not there yet."""


class Starting:
    """Decides with the same strategies as the reconciler, for one pod that the kubelet does not list yet."""

    def __init__(self, source: PodSource, kept: Policy, enforcer: enforcing.Enforcer) -> None:
        self._source = source
        self._policy = kept
        self._enforcer = enforcer

    def started(self, seen: nri.StartedPod) -> None:
        """Give the pod's group its level, in mode enforce."""
        if self._policy.mode != "enforce" or self._policy.slo is None:
            return
        slo = self._policy.slo
        pod = model_of(seen, ())
        known = tuple(other for other in self._source.pods if other.uid != pod.uid)
        snapshot = self._enforcer.look([*known, pod])
        self._enforcer.carry_out(snapshot, lambda found: planning.plan(found, slo, STRATEGIES).items)

    def adjust(self, seen: nri.StartedPod, container: str) -> nri.Adjustment | None:
        """Return what a container is to have, in mode enforce; None where the pod asks for nothing of ours.

        None beside another agent too: where two plugins set the same value, the runtime starts no container at all.
        """
        if self._policy.mode != "enforce":
            return None
        pod = model_of(seen, (container,))
        snapshot = self._enforcer.look([pod])
        snapshot = msgspec.structs.replace(snapshot, node=self._policy.node(snapshot.node))
        if self._enforcer.conflict:
            return None
        wanted = adjustment_of(snapshot, pod, self._policy.slo or NodeSlo())
        return None if wanted == nri.Adjustment() else wanted

    def resizing(self, container_id: str, quota_usec: int) -> None:
        """Have a container's burst, and its pod's, make room for a smaller quota, in mode enforce."""
        if self._policy.mode != "enforce":
            return

        def lowered(found: Snapshot) -> tuple[PlanItem, ...]:
            draft = Draft(found, cpu_burst.NAME)
            cpu_burst.make_room(draft, container_id, quota_usec)
            return merge(found, [draft]).items

        self._enforcer.carry_out(self._enforcer.look(self._source.pods), lowered)


def model_of(seen: nri.StartedPod, containers: tuple[str, ...]) -> Pod:
    """Return the pod as strategies see it, with the containers named; their batch resources come by annotation."""
    described = {
        "metadata": {
            "namespace": seen.namespace,
            "name": seen.name,
            "uid": seen.uid,
            "labels": seen.labels,
            "annotations": seen.annotations,
        },
        "spec": {"containers": [{"name": name} for name in containers]},
        "status": {"phase": "Running", "qosClass": kube_qos(seen.cgroup_parent)},
    }
    return decode(msgspec.json.encode({"items": [described]}), f"pod {seen.namespace}/{seen.name}")[0]


def kube_qos(cgroup_parent: str) -> KubeQos:
    """Return the kubelet's class of a pod by the group that it is in."""
    path = pathlib.PurePosixPath(cgroup_parent)
    if any("besteffort" in part for part in path.parts):
        return "BestEffort"
    return "Burstable" if any("burstable" in part for part in path.parts) else "Guaranteed"


def adjustment_of(snapshot: Snapshot, pod: Pod, slo: NodeSlo) -> nri.Adjustment:
    """Return what the only container of a pod is to have by its batch resources and the CPUs that it was given."""
    container = pod.containers[0]
    cpus = None
    if pod.resource_status.cpuset or pod.resource_status.numa_nodes:
        found = cpuset.container_cpus(snapshot, PodGroup("", pod.kube_qos, pod), container)
        cpus = cpulist.render(found[0]) if found else None
    quota = -1 if pod.resource_status.cpuset else None
    if pod.qos_label != "BE" or not pod.has_extended_spec:
        return nri.Adjustment(quota_usec=quota, cpus=cpus or None)
    by_quota = cpu_suppress.uses_quota(slo.threshold)
    ratio = snapshot.node.cpu_normalization_ratio
    limit = batch_resources.quota_usec((container,), ratio=ratio).value
    return nri.Adjustment(
        shares=cgroup.shares_of(container.extended_request(BATCH_CPU)),
        quota_usec=-1 if by_quota or limit is None else limit,
        cpus=cpus or None,
        memory_limit_bytes=batch_resources.memory_limit((container,)).value,
    )
