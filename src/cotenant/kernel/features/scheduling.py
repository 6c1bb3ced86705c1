"""Sibling threads: whether there are any, and what separates or expels."""

from cotenant.kernel import core_cookie
from cotenant.kernel.features.registry import Finding, feature
from cotenant.kernel.priority.evidence import Evidence


@feature(
    "smt",
    "schedule",
    "sibling threads are in use, so that work on one slows the other",
    "nothing to separate: every CPU is a core",
)
def smt(evidence: Evidence) -> Finding:
    active = evidence.smt_active()
    if active is None:
        return Finding("unknown", "the kernel does not say (smt/active)")
    if active:
        return Finding("available", "smt/active is 1")
    control = evidence.text(evidence.root.sys / "devices/system/cpu/smt/control") or "unknown"
    if control in ("notsupported", "notimplemented", "unknown"):
        return Finding("missing", f"smt/active is 0, smt/control is {control}")
    return Finding("disabled", f"smt/active is 0, smt/control is {control}", "only if it is wanted: smt/control, boot")


@feature(
    "core-scheduling",
    "schedule",
    "cookies: tasks share a core with their own kind only",
    "sibling threads are separated by whole-core CPU sets",
)
def core_scheduling(evidence: Evidence) -> Finding:
    if evidence.root.is_machine:
        if core_cookie.is_available():
            return Finding("available", "prctl(PR_SCHED_CORE) answers")
        return Finding("missing", "prctl(PR_SCHED_CORE) is refused", "a kernel 5.14 or newer with CONFIG_SCHED_CORE")
    if evidence.sysctl_exists("kernel/sched_core"):
        return Finding("available", "the sysctl sched_core exists")
    return Finding("unknown", "can be told only on the machine itself, not from a copy of its files")


@feature(
    "group-identity",
    "schedule",
    "Anolis: priority and expulsion by `cpu.bvt_warp_ns` or `cpu.priority`",
    "another interface holds offline work back: see `priority_interface`",
)
def group_identity(evidence: Evidence) -> Finding:
    switch = evidence.sysctl("kernel/sched_group_identity_enabled")
    if switch == "0":
        remedy = "sysctl kernel.sched_group_identity_enabled=1 (cotenant sets it when the strategy is on)"
        return Finding("disabled", "sched_group_identity_enabled is 0", remedy)
    for file in ("cpu.bvt_warp_ns", "cpu.priority"):
        if evidence.find("cpu", file) is not None:
            return Finding("available", f"{file} found")
    if switch == "1":
        return Finding("available", "sched_group_identity_enabled is 1")
    return Finding("missing", "neither cpu.bvt_warp_ns nor cpu.priority")


@feature(
    "qos-level",
    "schedule",
    "openEuler: absolute suppression and expulsion by `cpu.qos_level`",
    "another interface holds offline work back: see `priority_interface`",
)
def qos_level(evidence: Evidence) -> Finding:
    if evidence.find("cpu", "cpu.qos_level") is not None:
        return Finding("available", "cpu.qos_level found")
    return Finding("missing", "no cpu.qos_level", "an openEuler kernel with CONFIG_QOS_SCHED, cgroup v1")
