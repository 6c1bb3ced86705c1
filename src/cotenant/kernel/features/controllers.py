"""Control groups themselves: which versions are mounted and where each controller is."""

from cotenant.kernel.features.registry import FEATURES, Feature, Finding, feature
from cotenant.kernel.priority.evidence import Evidence

CONTROLLERS: dict[str, tuple[str, str, str]] = {
    # name: (v1 controller, v2 controller, what is lost)
    "cpu": ("cpu", "cpu", "offline work cannot be held back from the CPU"),
    "cpuset": ("cpuset", "cpuset", "work cannot be kept to CPUs"),
    "memory": ("memory", "memory", "memory is neither limited nor protected"),
    "io": ("blkio", "io", "block I/O is not limited"),
    "pids": ("pids", "pids", "nothing: cotenant does not use it"),
    "net-cls": ("net_cls", "", "openEuler's network priority cannot be used"),
    "perf-event": ("perf_event", "perf_event", "hardware counters are not told apart by group"),
}


@feature("cgroup-v2", "cgroup", "the unified hierarchy", "v1 files are used: no io.max, memory.high or PSI of groups")
def cgroup_v2(evidence: Evidence) -> Finding:
    version = evidence.root.cgroup_version()
    remedy = "boot with systemd.unified_cgroup_hierarchy=1"
    if version == "v2":
        return Finding("available", "the only hierarchy")
    if version == "hybrid":
        return Finding("available", "mounted beside v1, which has the controllers", f"for everything on v2: {remedy}")
    return Finding("missing", "not mounted", remedy)


@feature("cgroup-v1", "cgroup", "a hierarchy for each controller", "openEuler's and TencentOS's levels are on v1 only")
def cgroup_v1(evidence: Evidence) -> Finding:
    if evidence.root.cgroup_version() in ("v1", "hybrid"):
        return Finding("available", "mounted")
    remedy = "boot with systemd.unified_cgroup_hierarchy=0, if this kernel's own interface is on v1"
    return Finding("missing", "not mounted", remedy)


def _probe(v1: str, v2: str, evidence: Evidence) -> Finding:
    for mount in evidence.root.cgroup_mounts():
        if mount.version == 1 and v1 in mount.controllers:
            return Finding("available", f"v1, {evidence.root.relative(mount.path)}")
    for mount in evidence.root.cgroup_mounts():
        if mount.version == 2 and v2 and v2 in mount.controllers:
            return Finding("available", f"v2, {evidence.root.relative(mount.path)}")
    state = evidence.controller_state(v1)
    if state == "off":
        return Finding("disabled", "the kernel has it, turned off at boot", f"boot without cgroup_disable={v1}")
    if state == "on":
        return Finding("disabled", "the kernel has it and it is not mounted", f"mount it: -t cgroup -o {v1}")
    return Finding("missing", "this kernel has no such controller")


def _register() -> None:
    for name, (v1, v2, without) in CONTROLLERS.items():

        def probe(evidence: Evidence, v1: str = v1, v2: str = v2) -> Finding:
            return _probe(v1, v2, evidence)

        FEATURES[name] = Feature(name, "cgroup", f"the {v2 or v1} controller", without, probe)


_register()
