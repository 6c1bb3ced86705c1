"""Features that show interference: pressure, BPF, the PMU, resctrl."""

import errno

from cotenant.kernel.bpf import btf, libbpf
from cotenant.kernel.bpf.errors import BpfUnavailable
from cotenant.kernel.features.registry import Finding, feature, readable
from cotenant.kernel.priority.evidence import Evidence

PSI_REMEDY = "boot with psi=1 (kernel 4.20 or newer, CONFIG_PSI)"
OTHER_ROOT = Finding("unknown", "can be told only on the machine itself, not from a copy of its files")


@feature(
    "psi",
    "observe",
    "stall time of the node (`/proc/pressure`)",
    "memory pressure is taken from MemAvailable and page scans; hard limits on PSI are not in force",
)
def psi(evidence: Evidence) -> Finding:
    path = evidence.root.proc / "pressure"
    if not path.is_dir():
        return Finding("missing", "there is no pressure directory in procfs", PSI_REMEDY)
    error = readable(path / "memory")
    if error is None:
        return Finding("available", "pressure files are read")
    if error.errno == errno.EOPNOTSUPP:
        return Finding("disabled", "pressure accounting is off", PSI_REMEDY)
    return Finding("unknown", f"pressure/memory: {error.strerror}", PSI_REMEDY)


@feature(
    "psi-irq",
    "observe",
    "time lost to interrupts (`/proc/pressure/irq`)",
    "interrupt load is taken from the CPU times of `/proc/stat`",
)
def psi_irq(evidence: Evidence) -> Finding:
    if readable(evidence.root.proc / "pressure/irq") is None:
        return Finding("available", "pressure/irq is read")
    return Finding("missing", "there is no pressure/irq", "a kernel 6.1 or newer with CONFIG_IRQ_TIME_ACCOUNTING")


@feature(
    "psi-cgroup",
    "observe",
    "stall time of each group: who is hurt",
    "stalls are known of the node as a whole only, so victims are told with lower coverage",
)
def psi_cgroup(evidence: Evidence) -> Finding:
    for mount in evidence.root.cgroup_mounts():
        # v1 files are in the cpuacct hierarchy, on vendors' kernels only.
        if mount.version == 2 or "cpuacct" in mount.controllers:
            directory = evidence.find_below(mount.path, "cpu.pressure") or evidence.find_below(
                mount.path, "memory.pressure"
            )
            if directory is not None:
                where = evidence.root.relative(directory)
                return Finding("available", f"pressure files found in {where}")
    remedy = "cgroup v2; on openEuler and Anolis with v1 boot with psi=1 psi_v1=1"
    return Finding("missing", "no group has pressure files", remedy)


@feature("btf", "observe", "the kernel's own type information", "no eBPF: see `ebpf`")
def btf_(evidence: Evidence) -> Finding:
    path = evidence.root.sys / "kernel/btf/vmlinux"
    if path.exists():
        return Finding("available", f"{evidence.root.relative(path)} exists")
    return Finding("missing", "the kernel shows no BTF", "a kernel built with CONFIG_DEBUG_INFO_BTF")


@feature("libbpf", "observe", "the library that loads eBPF programs", "no eBPF: see `ebpf`")
def libbpf_(evidence: Evidence) -> Finding:
    if not evidence.root.is_machine:
        return OTHER_ROOT
    try:
        libbpf.library()
    except BpfUnavailable as error:
        return Finding("missing", str(error), "install the package libbpf1 (Debian) or libbpf (openEuler, Anolis)")
    return Finding("available", f"{libbpf.LIBRARY} is loaded")


@feature(
    "ebpf",
    "observe",
    "block and run-queue latency of each request and wake-up",
    "block latency is taken from `/proc/diskstats`, run-queue delay from schedstat, and the sample says which",
)
def ebpf(evidence: Evidence) -> Finding:
    if not evidence.root.is_machine:
        return OTHER_ROOT
    try:
        with btf.Btf.of_kernel() as types:
            found = types.tracepoint_arguments("block_rq_issue")
    except BpfUnavailable as error:
        return Finding("missing", str(error), "see btf and libbpf; run as root or with CAP_BPF and CAP_PERFMON")
    if found is None:
        return Finding("missing", "the kernel has no block_rq_issue trace point", "a kernel with CONFIG_BLOCK tracing")
    return Finding("available", "the trace points are described by BTF")


@feature(
    "schedstat",
    "observe",
    "waiting time in run queues",
    "without eBPF run-queue delay is unknown",
)
def schedstat(evidence: Evidence) -> Finding:
    if readable(evidence.root.proc / "schedstat") is None:
        return Finding("available", "proc/schedstat is read")
    return Finding("missing", "there is no proc/schedstat", "a kernel with CONFIG_SCHEDSTATS")


@feature(
    "perf",
    "observe",
    "hardware counters: cache misses, instructions",
    "last-level-cache pollution is told by resctrl, or by the opt-in probe, or not at all",
)
def perf(evidence: Evidence) -> Finding:
    devices = evidence.root.sys / "bus/event_source/devices"
    if not devices.is_dir():
        return Finding("missing", "the kernel has no event sources", "a kernel with CONFIG_PERF_EVENTS")
    names = sorted(path.name for path in devices.iterdir())
    found = [name for name in names if name == "cpu" or name.startswith(("cpu_core", "armv8_pmu"))]
    if not found:
        return Finding(
            "missing", "no PMU: most virtual machines have none", "turn the virtual PMU on in the hypervisor"
        )
    return Finding("available", f"PMU {found[0]}")


RESCTRL_FLAGS = frozenset({"rdt_a", "cat_l3", "cqm", "mba"})


@feature(
    "resctrl",
    "observe",
    "cache occupancy and memory bandwidth of groups, and limits on both",
    "offline work cannot be kept out of the last-level cache; occupancy is unknown",
)
def resctrl(evidence: Evidence) -> Finding:
    mounted = evidence.root.resctrl()
    if mounted is not None and (mounted / "info").is_dir():
        return Finding("available", f"mounted at {evidence.root.relative(mounted)}")
    if "resctrl" not in evidence.words(evidence.root.proc / "filesystems"):
        remedy = "a kernel with CONFIG_X86_CPU_RESCTRL; on openEuler for Kunpeng boot with mpam=acpi"
        return Finding("missing", "the kernel has no resctrl file system", remedy)
    remedy = "mount -t resctrl resctrl /sys/fs/resctrl"
    if evidence.words(evidence.root.proc / "cpuinfo") & RESCTRL_FLAGS:
        return Finding("disabled", "the CPU has it and it is not mounted", remedy)
    return Finding("unknown", "the kernel has it; whether the CPU does shows when it is mounted", remedy)


def _resctrl_part(evidence: Evidence, name: str) -> Finding:
    mounted = evidence.root.resctrl()
    if mounted is None or not (mounted / "info").is_dir():
        whole = resctrl(evidence)
        return Finding("unknown" if whole.state == "disabled" else whole.state, whole.reason, whole.remedy)
    if (mounted / "info" / name).is_dir():
        return Finding("available", f"info/{name} exists")
    return Finding("missing", f"there is no info/{name}: the CPU does not offer it")


@feature("resctrl-cat", "limit", "a share of the last-level cache", "the cache is not divided")
def resctrl_cat(evidence: Evidence) -> Finding:
    return _resctrl_part(evidence, "L3")


@feature("resctrl-mba", "limit", "a share of the memory bandwidth", "memory bandwidth is not limited")
def resctrl_mba(evidence: Evidence) -> Finding:
    return _resctrl_part(evidence, "MB")


@feature("resctrl-monitoring", "observe", "occupancy and bandwidth by group", "cache polluters are told by misses only")
def resctrl_monitoring(evidence: Evidence) -> Finding:
    return _resctrl_part(evidence, "L3_MON")
