"""Why a value is unknown, and what would make it known: one sentence of each for every reason of the closed list."""

import dataclasses
from collections.abc import Mapping

from cotenant.model.sample import MissingReason


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """``why`` says what is the case; ``remedy`` what a person can do about it."""

    why: str
    remedy: str


EXPLANATIONS: dict[MissingReason, Explanation] = {
    "no_pmu": Explanation(
        "no hardware performance counters here",
        "bare metal has them; a VM needs a virtual PMU from its host, or start with --llc-probe",
    ),
    "no_resctrl": Explanation(
        "no resctrl monitoring here",
        "needs a CPU with CMT/MBM (Intel RDT, AMD QoS) or MPAM: mount -t resctrl resctrl /sys/fs/resctrl",
    ),
    "no_bpf": Explanation(
        "the kernel refused our eBPF programs",
        "run as root (CAP_BPF and CAP_PERFMON) on a kernel ≥ 5.8 with CONFIG_BPF_SYSCALL and CONFIG_BPF_EVENTS",
    ),
    "no_btf": Explanation(
        "the kernel has no type information (BTF)",
        "needs /sys/kernel/btf/vmlinux: a kernel with CONFIG_DEBUG_INFO_BTF=y",
    ),
    "no_libbpf": Explanation("libbpf is not installed", "apt-get install libbpf1 (Debian) or dnf install libbpf"),
    "no_class": Explanation(
        "no group is marked online or offline",
        "name your service: cotenant up --match 'system.slice/nginx.service=LS', or start work with cotenant run",
    ),
    "psi_disabled": Explanation(
        "pressure stall information is off", "boot with psi=1 (openEuler and Anolis on cgroup v1: also psi_v1=1)"
    ),
    "permission": Explanation(
        "not allowed to read it", "run as root, or give the service CAP_SYS_ADMIN and CAP_PERFMON"
    ),
    "not_enabled": Explanation("it is there but not switched on", "see cotenant check for the switch of this feature"),
    "not_built": Explanation(
        "this optional part was not built", "run make in the source tree, with a C compiler there"
    ),
    "not_running": Explanation("its reader has not run yet", "wait a period; if it stays, see the log"),
    "unsupported": Explanation("this kernel does not provide it", "needs a kernel built with this feature"),
    "first_sample": Explanation("a rate needs two readings", "known from the next sample on"),
    "too_few": Explanation("too few values, or too few events for a percentile", "known once enough was seen"),
    "reset": Explanation("its counter started anew", "nothing to do: known again from the next sample on"),
    "stale": Explanation("its last reading is too old", "the source did not answer in time: see the log"),
    "gone": Explanation("the device or group has gone", "nothing to do"),
    "io_error": Explanation("reading it failed", "see the log for the file and errno"),
    "malformed": Explanation("the kernel's text was not understood", "please report it with the file's content"),
}


PASSING_REASONS: frozenset[MissingReason] = frozenset(
    {"first_sample", "too_few", "reset", "stale", "gone", "not_running"}
)
"""Reasons that go away by themselves."""


def reason_of(name: str, missing: Mapping[str, MissingReason]) -> MissingReason | None:
    """Return why a field such as ``psi.irq_full_ratio`` is unknown: its own entry, else its group's, else None."""
    while name:
        if name in missing:
            return missing[name]
        name = name.rpartition(".")[0]
    return None
