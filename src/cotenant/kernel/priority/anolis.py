"""Anolis and Alibaba Cloud Linux: group identity.

Generation 1 is ``cpu.bvt_warp_ns`` (4.19, 5.10), any value to any value. It and core scheduling together lock the
machine up. Generation 2 is ``cpu.priority`` with ``cpu.identity``, whose expulsion rides *on* core scheduling. Some
hosts show both files; only what generation 1 needs is safe there.
"""

from cotenant.kernel.priority import protocol
from cotenant.kernel.priority.evidence import Evidence
from cotenant.model.priority import PriorityInterface, Switch

BVT_FILE = "cpu.bvt_warp_ns"
BVT_VALUES = {2: "2", 1: "1", 0: "0", -1: "-1"}
BVT_SYSCTL = "kernel/sched_group_identity_enabled"
PRIORITY_FILE = "cpu.priority"
PRIORITY_VALUES = {2: "1", 1: "1", 0: "0", -1: "-1"}
IDENTITY_FILE = "cpu.identity"
IDENTITY_VALUES = {2: "1", 1: "0", 0: "0", -1: "-1"}
CORE_SYSCTL = "kernel/sched_core"


@protocol.family("anolis-bvt")
def find_bvt(evidence: Evidence) -> PriorityInterface | None:
    """Return generation 1, or None with neither ``cpu.bvt_warp_ns`` nor its sysctl."""
    directory = evidence.find("cpu", BVT_FILE)
    has_sysctl = evidence.sysctl_exists(BVT_SYSCTL)
    version = evidence.version("cpu")
    if version is None or (directory is None and not has_sysctl):
        return None
    switches = []
    if evidence.sysctl_exists(CORE_SYSCTL):
        switches.append(Switch(_sysctl_path(evidence, CORE_SYSCTL), "0", "excludes group identity"))
    if has_sysctl:
        switches.append(Switch(_sysctl_path(evidence, BVT_SYSCTL), "1", f"{BVT_FILE} is refused while it is off"))
    found = f"{BVT_FILE} found in {evidence.root.relative(directory)}" if directory else f"{BVT_SYSCTL} exists"
    return PriorityInterface(
        name="anolis-bvt",
        versions={"cpu": version},
        levels=(2, 1, 0, -1),
        settings=protocol.settings_of("cpu", BVT_FILE, BVT_VALUES),
        switches=tuple(switches),
        inherits=True,
        core_scheduling="must_be_off",
        smt_expulsion=evidence.smt_active(),
        reason=found,
    )


@protocol.family("anolis-priority")
def find_priority(evidence: Evidence) -> PriorityInterface | None:
    """Return generation 2, or None without ``cpu.priority``."""
    directory = evidence.find("cpu", PRIORITY_FILE)
    version = evidence.version("cpu")
    if directory is None or version is None:
        return None
    settings = protocol.settings_of("cpu", PRIORITY_FILE, PRIORITY_VALUES)
    has_identity = evidence.find("cpu", IDENTITY_FILE) is not None
    switches: tuple[Switch, ...] = ()
    if has_identity:
        settings += protocol.settings_of("cpu", IDENTITY_FILE, IDENTITY_VALUES)
        if evidence.sysctl_exists(CORE_SYSCTL):
            switches = (Switch(_sysctl_path(evidence, CORE_SYSCTL), "1", f"{IDENTITY_FILE} needs core scheduling"),)
    return PriorityInterface(
        name="anolis-priority",
        versions={"cpu": version},
        levels=(1, 0, -1),
        settings=settings,
        switches=switches,
        core_scheduling="must_be_on" if has_identity else None,
        smt_expulsion=evidence.smt_active() if has_identity else False,
        reason=f"{PRIORITY_FILE} found in {evidence.root.relative(directory)}",
    )


def _sysctl_path(evidence: Evidence, name: str) -> str:
    return evidence.root.relative(evidence.root.proc / "sys" / name)
