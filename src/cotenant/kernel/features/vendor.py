"""Vendors' features that are more than a file of a group: a switch goes with them."""

from cotenant.kernel.features.registry import Finding, feature
from cotenant.kernel.priority.evidence import Evidence


@feature(
    "memory-qos-level",
    "vendor",
    "openEuler: offline groups are killed first when memory runs out (`memory.qos_level`)",
    "oom_score_adj alone decides",
)
def memory_qos_level(evidence: Evidence) -> Finding:
    if evidence.find("memory", "memory.qos_level") is None:
        return Finding("missing", "no memory.qos_level", "an openEuler kernel with CONFIG_MEMCG_QOS, cgroup v1")
    if evidence.sysctl("vm/memcg_qos_enable") == "0":
        remedy = "sysctl vm.memcg_qos_enable=1 (cotenant sets it when the strategy is on)"
        return Finding("disabled", "vm.memcg_qos_enable is 0", remedy)
    return Finding("available", "memory.qos_level found")


@feature(
    "net-qos",
    "vendor",
    "openEuler: offline traffic yields to online traffic",
    "network is not held back, and the strategy says unsupported",
)
def net_qos(evidence: Evidence) -> Finding:
    if (evidence.root.proc / "qos/net_qos_enable").exists():
        return Finding("available", "qos/net_qos_enable exists in procfs")
    return Finding("missing", "no qos/net_qos_enable in procfs", "openEuler: install oncn-bwm (bwmcli)")


@feature(
    "memcg-reaper",
    "vendor",
    "Anolis: memory of removed groups is reclaimed in the background",
    "nothing: groups that are removed keep their pages until reclaim",
)
def memcg_reaper(evidence: Evidence) -> Finding:
    path = evidence.root.sys / "kernel/mm/memcg_reaper/reap_background"
    if path.exists():
        return Finding("available", f"{evidence.root.relative(path)} exists")
    return Finding("missing", "no memcg_reaper", "an Anolis kernel")
