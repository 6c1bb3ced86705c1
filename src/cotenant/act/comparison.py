"""What another agent left in the kernel, beside what we would have written by the same policy: agreement, and why not.

The other agent is koordlet. It follows the same NodeSLO, so what it holds differently is a difference of method, and
most of those are known; one that is not is said to be unexplained.
"""

import dataclasses
from collections.abc import Callable

from cotenant.act import cpu_normalization
from cotenant.act.draft import Plan, Target
from cotenant.model.pod import BATCH_MEMORY, Pod
from cotenant.model.snapshot import PodGroup, Snapshot
from cotenant.units import contents, ordering


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value that is not there as we would have written it.

    ``found`` None: the file cannot be read. ``explanation`` empty: none is known.
    """

    path: str
    strategy: str
    wanted: str
    found: str | None
    reason: str
    explanation: str
    irreversible: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """One look at a node: how many values agree, which do not, and what we would do besides writing values."""

    agreed: int
    differences: tuple[Difference, ...]
    steps: tuple[str, ...] = ()

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        """The differences for which no explanation is known."""
        return tuple(difference for difference in self.differences if not difference.explanation)


def compare(snapshot: Snapshot, plan: Plan) -> Comparison:
    """Return how the values that a plan wants compare with those that are there."""
    agreed, differences = 0, []
    for target in plan.targets:
        found = snapshot.files.read(target.path)
        if found is not None and contents.same(_name(target), target.value, found):
            agreed += 1
            continue
        explanation = explain(snapshot, target)
        differences.append(
            Difference(
                path=target.path,
                strategy=target.strategy,
                wanted=target.value,
                found=found,
                reason=target.reason,
                explanation=explanation,
                irreversible=target.irreversible,
            )
        )
    steps = tuple(f"{item.op} {item.path or item.new}: {item.reason}" for item in plan.items if item.op != "write")
    return Comparison(agreed, tuple(sorted(differences, key=lambda one: (not one.irreversible, one.path))), steps)


def explain(snapshot: Snapshot, target: Target) -> str:
    """Return why koordlet holds another value there, or an empty text where no reason is known."""
    for known in KNOWN:
        if (
            known.strategy == target.strategy
            and (not known.files or _name(target) in known.files)
            and known.when(snapshot, target)
        ):
            return known.text
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """One known difference of method. ``files`` empty: whatever file. ``when``: of which group."""

    strategy: str
    files: tuple[str, ...]
    text: str
    when: Callable[[Snapshot, Target], bool] = lambda snapshot, target: True


def _name(target: Target) -> str:
    return target.path.rpartition("/")[2]


def _group(snapshot: Snapshot, target: Target) -> PodGroup | None:
    """Return the pod's group in which a file is, or None outside of pods."""
    return next((group for group in snapshot.groups if f"/{group.path}/" in target.path), None)


def _is_pods_own(snapshot: Snapshot, target: Target) -> bool:
    group = _group(snapshot, target)
    return group is not None and target.path.endswith(f"/{group.path}/{_name(target)}")


def _is_unlimited(snapshot: Snapshot, target: Target) -> bool:
    return target.value.split()[0] in ("-1", "max")


def _has_no_burst(snapshot: Snapshot, target: Target) -> bool:
    return snapshot.files.read(target.path) in (None, "0")


def _is_normalized_node(snapshot: Snapshot, target: Target) -> bool:
    return snapshot.node.cpu_normalization_ratio > 1


def _has_whole_quota(snapshot: Snapshot, target: Target) -> bool:
    """Return whether a container's quota is that of its limit, or an enlargement of it."""
    group = _group(snapshot, target)
    found = snapshot.files.read(target.path)
    if group is None or found is None or not found.split()[0].isdecimal():
        return False
    limits = cpu_normalization.Limits.of(snapshot)
    own = next((limits.limit_usec(child) for child in group.containers if f"/{child.path}/" in target.path), None)
    return own is not None and int(found.split()[0]) >= own


def _is_annotated(snapshot: Snapshot, target: Target) -> bool:
    group = _group(snapshot, target)
    return group is not None and group.pod is not None and bool(group.pod.cpu_qos)


def _is_system(snapshot: Snapshot, target: Target) -> bool:
    group = _group(snapshot, target)
    return group is not None and group.pod is not None and group.pod.qos_label == "SYSTEM"


def _is_offline_without_batch(snapshot: Snapshot, target: Target) -> bool:
    group = _group(snapshot, target)
    return group is not None and group.pod is not None and group.pod.qos_label == "BE" and not _has_batch(group.pod)


def _has_batch(pod: Pod) -> bool:
    return any(container.extended_request(BATCH_MEMORY) for container in pod.containers)


def _is_outside_pods(snapshot: Snapshot, target: Target) -> bool:
    return _group(snapshot, target) is None


def _is_one_way(snapshot: Snapshot, target: Target) -> bool:
    return any(part.partition("=")[2] == "1" for part in target.value.partition(":")[2].split(";"))


# Sources: koordinator-sh/koordinator as of July 2026, and its issues. In order: the first that applies is said.
KNOWN: tuple[Known, ...] = (
    Known(
        "group_identity",
        ("cpu.bvt_warp_ns",),
        "the pod has a cpuQOS annotation: koordlet writes 0 where it has no `enable`, gives the pod's containers the"
        " class's value all the same, and the pod too at each change of the NodeSLO; here an annotation counts for pod"
        " and containers, and without `enable` it changes nothing",
        _is_annotated,
    ),
    Known(
        "group_identity",
        ("cpu.bvt_warp_ns",),
        "a SYSTEM pod: koordlet gives one in the Burstable directory the identity of LS; here it has that of SYSTEM",
        _is_system,
    ),
    Known(
        "group_identity",
        ("cpu.idle",),
        "koordlet knows cpu.idle only on QoS directories, where the kubelet's next start fails on it; here each offline"
        " pod gets it",
    ),
    Known(
        "group_identity",
        (
            "cpu.qos_level",
            "memory.qos_level",
            "cpu.identity",
            "cpu.priority",
            "cpu.offline",
            "cpu.shares",
            "cpu.weight",
        ),
        "koordlet knows only cpu.bvt_warp_ns and leaves the priority interface of this kernel alone",
    ),
    Known(
        "cpu_suppress",
        ordering.QUOTA_FILES,
        "a moving target that both follow second by second; besides, offline work keeps min(2, ceil(CPUs/4)) CPUs here"
        " and 2,000 µs of quota there",
    ),
    Known(
        "cpu_suppress",
        ordering.CPUSET_FILES,
        "a moving target that both follow second by second; besides, offline work keeps min(2, ceil(CPUs/4)) CPUs here"
        " and 2 there, there is hysteresis here, CPUs that the kubelet pinned are not given away, and where more is"
        " allowed than there is, all of it is given",
    ),
    Known(
        "batch_resources",
        ordering.QUOTA_FILES,
        "a container without a batch-cpu limit: koordlet before 1.3 gives it a quota of almost nothing; here, and since"
        " then there, no limit is no limit",
        _is_unlimited,
    ),
    Known(
        "cpu_burst",
        ("cpu.max.burst", "cpu.cfs_burst_us"),
        "koordlet asks for more burst than quota, which this kernel refuses, so that there is none; here it is the"
        " smaller of the two",
        _has_no_burst,
    ),
    Known(
        "cpu_burst",
        ordering.QUOTA_FILES,
        "a moving target: koordlet scales all throttled pods up or down at once, here as many as there is room for",
    ),
    Known(
        "cpu_burst",
        ("cpu.max.burst", "cpu.cfs_burst_us"),
        "the node has a CPU normalization ratio: koordlet's burst follows the whole limit, here the divided one",
        _is_normalized_node,
    ),
    Known(
        "cpu_normalization",
        ordering.QUOTA_FILES,
        "koordlet divides the quota of the pod too, which on cgroup v1 keeps its containers from starting again; here"
        " it stays the kubelet's",
        _is_pods_own,
    ),
    Known(
        "cpu_normalization",
        ordering.QUOTA_FILES,
        "koordlet divides quotas by the CPU normalization ratio only with its gate CPUNormalization, which is off by"
        " default; where it is on, its burst writes the whole limit into the same file, and the two take turns",
        _has_whole_quota,
    ),
    Known(
        "batch_resources",
        ordering.QUOTA_FILES,
        "koordlet divides the quotas of batch-cpu by the CPU normalization ratio only with its gate CPUNormalization,"
        " which is off by default, while its manager multiplies what is offered",
        _is_normalized_node,
    ),
    Known(
        "memory_qos",
        ("memory.high",),
        "koordlet sets memory.high on containers only; here the pod has it too",
        _is_pods_own,
    ),
    Known(
        "memory_qos",
        ("memory.min", "memory.low", "memory.high"),
        "an offline pod without batch-memory: koordlet takes it to ask for nothing and to have no limit; here its"
        " native request and limit count",
        _is_offline_without_batch,
    ),
    Known(
        "memory_qos",
        ("memory.low",),
        "koordlet adds up the pods' shares for the directory before it raises each to its memory.min, so that the"
        " directory protects less than the pods in it",
        _is_outside_pods,
    ),
    Known(
        "memory_qos",
        ("memory.pagecache_limit.size", "memory.pagecache_limit.sync", "memory.pagecache_limit.enable"),
        "koordlet limits page cache on cgroup v2 only",
        lambda snapshot, target: snapshot.version("memory") == 1,
    ),
    Known(
        "memory_qos",
        ("memory.soft_limit_in_bytes",),
        "koordlet does nothing where there is no memory.low; here the soft limit stands in",
    ),
    Known(
        "resctrl",
        ("schemata",),
        "a range of cache ways that rounds to none: the kernel refuses koordlet's mask 0; here it is one way",
        _is_one_way,
    ),
    Known("block_io", ("io.max", "io.weight", "io.latency"), "koordlet has block I/O on cgroup v1 only"),
    Known(
        "network",
        ("net_cls.classid",),
        "koordlet marks traffic for tc, by classes of its own, only with its gate TCNetworkQoS (off by default)",
    ),
    Known("network", (), "koordlet does not know openEuler's network QoS"),
    Known("core_sched", (), "koordlet's core scheduling is behind its gate CoreSched, which is off by default"),
)
