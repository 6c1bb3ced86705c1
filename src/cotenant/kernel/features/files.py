"""Features that are a file of a group, one row each: the file's presence is the feature."""

import dataclasses

from cotenant.kernel.features.registry import FEATURES, Area, Feature, Finding
from cotenant.kernel.priority.evidence import Evidence


@dataclasses.dataclass(frozen=True, slots=True)
class FileFeature:
    """A file that shows a feature, by version; None where that version never has it."""

    name: str
    area: Area
    what: str
    without: str
    v1: tuple[str, str] | None
    """Controller and file."""
    v2: tuple[str, str] | None
    remedy: str | None = None
    at_root: bool = False
    """Shown by the root alone, so that its absence there is final."""


FILES: tuple[FileFeature, ...] = (
    FileFeature(
        "cpu-burst",
        "limit",
        "a group may save up quota for a burst",
        "short bursts of online work are throttled by their own quota",
        ("cpu", "cpu.cfs_burst_us"),
        ("cpu", "cpu.max.burst"),
        "a kernel 5.14 or newer (5.10 on openEuler and Anolis)",
    ),
    FileFeature(
        "cpu-quota",
        "limit",
        "a bound on CPU time",
        "offline work is suppressed by CPU sets only",
        ("cpu", "cpu.cfs_quota_us"),
        ("cpu", "cpu.max"),
        "a kernel with CONFIG_CFS_BANDWIDTH",
    ),
    FileFeature(
        "cpuset-partition",
        "limit",
        "CPUs taken out of everybody else's reach",
        "exclusive CPUs rest on the sets of the other groups",
        None,
        ("cpuset", "cpuset.cpus.partition"),
        "cgroup v2",
    ),
    FileFeature(
        "memory-qos",
        "limit",
        "memory that reclaim leaves to a group (`memory.min`, `memory.low`)",
        "on v1 the soft limit stands in; elsewhere memory is not protected",
        ("memory", "memory.min"),
        ("memory", "memory.min"),
        "cgroup v2, or an openEuler or Anolis kernel",
    ),
    FileFeature(
        "memory-high",
        "limit",
        "reclaim before the hard limit (`memory.high`)",
        "offline work is held back by the hard limit alone",
        ("memory", "memory.high"),
        ("memory", "memory.high"),
        "cgroup v2, or an openEuler or Anolis kernel",
    ),
    FileFeature(
        "memory-soft-limit",
        "limit",
        "v1's best-effort protection",
        "nothing, where memory.low exists",
        ("memory", "memory.soft_limit_in_bytes"),
        None,
    ),
    FileFeature(
        "memory-reclaim",
        "limit",
        "reclaim on request (`memory.reclaim`)",
        "memory is taken from a suspect by lowering memory.high only",
        ("memory", "memory.reclaim"),
        ("memory", "memory.reclaim"),
        "a kernel 5.19 or newer with cgroup v2",
    ),
    FileFeature(
        "io-max",
        "limit",
        "bounds on a group's bandwidth and requests",
        "offline I/O is not bounded",
        ("blkio", "blkio.throttle.read_bps_device"),
        ("io", "io.max"),
        "a kernel with CONFIG_BLK_DEV_THROTTLING",
    ),
    FileFeature(
        "io-cost",
        "limit",
        "proportional I/O by a cost model",
        "I/O is shared by bounds only, not by weight",
        ("blkio", "blkio.cost.qos"),
        ("io", "io.cost.qos"),
        "cgroup v2 with CONFIG_BLK_CGROUP_IOCOST, or an openEuler or Anolis kernel",
        at_root=True,
    ),
    FileFeature(
        "io-weight",
        "limit",
        "a group's weight for I/O",
        "I/O is shared by bounds only, not by weight",
        ("blkio", "blkio.cost.weight"),
        ("io", "io.weight"),
        "turn io.cost.qos on for the device",
    ),
    FileFeature(
        "io-latency",
        "limit",
        "a latency target that siblings pay for",
        "nothing: cotenant does not use it",
        None,
        ("io", "io.latency"),
        "a kernel with CONFIG_BLK_CGROUP_IOLATENCY",
    ),
    FileFeature(
        "cpu-idle",
        "schedule",
        "a group that runs only when nothing else wants the CPU",
        "the smallest weight holds offline work back",
        ("cpu", "cpu.idle"),
        ("cpu", "cpu.idle"),
        "a kernel 5.15 or newer",
    ),
    FileFeature(
        "memory-async-reclaim",
        "vendor",
        "openEuler: reclaim in the background (`memory.high_async_ratio`)",
        "tasks of the group reclaim for themselves when memory.high is reached",
        ("memory", "memory.high_async_ratio"),
        ("memory", "memory.high_async_ratio"),
    ),
    FileFeature(
        "memory-watermark",
        "vendor",
        "Anolis: reclaim watermarks of a group (`memory.wmark_ratio`)",
        "tasks of the group reclaim for themselves",
        ("memory", "memory.wmark_ratio"),
        ("memory", "memory.wmark_ratio"),
    ),
    FileFeature(
        "memory-priority",
        "vendor",
        "Anolis: which group the OOM killer takes first (`memory.priority`)",
        "oom_score_adj alone decides",
        ("memory", "memory.priority"),
        ("memory", "memory.priority"),
    ),
    FileFeature(
        "dynamic-affinity",
        "vendor",
        "openEuler: preferred CPUs (`cpuset.preferred_cpus`)",
        "nothing: CPU sets are used",
        ("cpuset", "cpuset.preferred_cpus"),
        None,
    ),
    FileFeature(
        "soft-quota",
        "vendor",
        "openEuler: quota that idle CPUs do not enforce (`cpu.soft_quota`)",
        "nothing: bursts are used",
        ("cpu", "cpu.soft_quota"),
        None,
    ),
    FileFeature(
        "ht-ratio",
        "vendor",
        "Anolis: time charged by sibling contention (`cpu.ht_ratio`)",
        "nothing: cotenant does not use it",
        ("cpu", "cpu.ht_ratio"),
        ("cpu", "cpu.ht_ratio"),
    ),
)


def _probe(row: FileFeature, evidence: Evidence) -> Finding:
    tried = []
    for version, place in ((1, row.v1), (2, row.v2)):
        if place is None:
            continue
        controller, file = place
        if evidence.version(controller) != version:
            continue
        tried.append(file)
        directory = evidence.find(controller, file)
        if directory is not None:
            return Finding("available", f"{file} found in {evidence.root.relative(directory)}")
    if not tried:
        return Finding("missing", "the controller is not mounted in a version that has it", row.remedy)
    if row.at_root or evidence.has_groups((row.v2 or row.v1 or ("", ""))[0]):
        return Finding("missing", f"no group has {tried[0]}", row.remedy)
    return Finding("unknown", f"{tried[0]} would show in a child group, and there is none yet", row.remedy)


def _register() -> None:
    for row in FILES:

        def probe(evidence: Evidence, row: FileFeature = row) -> Finding:
            return _probe(row, evidence)

        FEATURES[row.name] = Feature(row.name, row.area, row.what, row.without, probe)


_register()
