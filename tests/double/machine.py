"""The files outside the cgroup trees: mount table, sysctls, topology, and a little of ``/proc``."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.double.text import refusal

if TYPE_CHECKING:
    from tests.double.model import Kernel

TOTAL_KIB = 16 << 20
BOOT_ID = "6f1c1f0e-9f57-4c39-8a5e-2d60c1a4f0aa"


@dataclasses.dataclass
class StaticFile:
    """A file with a text; ``check`` returns the text that a write leaves, None where it cannot be written."""

    text: str
    check: Callable[[str], str] | None = None

    def write(self, text: str) -> None:
        """Take a write or refuse it."""
        if self.check is None:
            raise refusal("EACCES")
        self.text = self.check(text)


def sysctl(value: int, low: int, high: int, refuses: Callable[[int], str | None] = lambda n: None) -> StaticFile:
    """Return an integer sysctl within bounds."""

    def check(text: str) -> str:
        word = text.strip()
        if not word.lstrip("-").isdigit() or not low <= int(word) <= high:
            raise refusal("EINVAL")
        error = refuses(int(word))
        if error:
            raise refusal(error)
        return f"{int(word)}\n"

    return StaticFile(f"{value}\n", check)


def files(kernel: "Kernel") -> dict[str, StaticFile]:
    """Return the files by path."""
    cpus = range(kernel.cpus)
    busy = "".join(f"cpu{cpu} 100 0 100 1000 0 0 0 0 0 0\n" for cpu in cpus)
    fixed = {
        "proc/self/mountinfo": mountinfo(kernel),
        "proc/sys/kernel/osrelease": kernel.flavour.release + "\n",
        "proc/sys/kernel/random/boot_id": BOOT_ID + "\n",
        "proc/stat": f"cpu 800 0 800 8000 0 0 0 0 0 0\n{busy}intr 0\nctxt 0\nbtime 1\nprocesses 1\n",
        "proc/meminfo": f"MemTotal: {TOTAL_KIB} kB\nMemFree: {TOTAL_KIB // 2} kB\nMemAvailable: {TOTAL_KIB // 2} kB\n",
        "proc/cpuinfo": "".join(f"processor\t: {cpu}\n\n" for cpu in cpus),
        "proc/cmdline": "root=/dev/vda1 ro\n",
        "proc/uptime": "1000.00 8000.00\n",
    }
    found = {path: StaticFile(text) for path, text in {**fixed, **_topology(kernel)}.items()}
    found.update(_sysctls(kernel))
    return found


def mountinfo(kernel: "Kernel") -> str:
    """Return the mount table."""
    lines = ["20 1 254:1 / / rw - ext4 /dev/vda1 rw"]
    if kernel.flavour.version == 1:
        lines.append("21 20 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755")
    for number, hierarchy in enumerate(kernel.hierarchies, 22):
        kind = "cgroup2 cgroup2 rw" if hierarchy.version == 2 else f"cgroup cgroup rw,{','.join(hierarchy.controllers)}"
        lines.append(f"{number} 20 0:{number} / /{hierarchy.point} rw - {kind}")
    return "\n".join(lines) + "\n"


def _topology(kernel: "Kernel") -> dict[str, str]:
    cores = kernel.cpus // kernel.threads_per_core
    found = {
        "sys/devices/system/cpu/online": f"0-{kernel.cpus - 1}\n",
        "sys/devices/system/cpu/possible": f"0-{kernel.cpus - 1}\n",
        "sys/devices/system/cpu/present": f"0-{kernel.cpus - 1}\n",
        "sys/devices/system/cpu/smt/active": f"{int(kernel.threads_per_core > 1)}\n",
        "sys/devices/system/cpu/smt/control": "on\n" if kernel.threads_per_core > 1 else "notsupported\n",
        "sys/devices/system/node/online": f"0-{kernel.nodes - 1}\n" if kernel.nodes > 1 else "0\n",
    }
    for cpu in range(kernel.cpus):
        siblings = ",".join(str(one) for one in range(cpu % cores, kernel.cpus, cores))
        topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
        found[f"{topology}/thread_siblings_list"] = siblings + "\n"
        found[f"{topology}/core_cpus_list"] = siblings + "\n"
        found[f"{topology}/core_id"] = f"{cpu % cores}\n"
        found[f"{topology}/physical_package_id"] = "0\n"
    return found


def _sysctls(kernel: "Kernel") -> dict[str, StaticFile]:
    vendor = kernel.flavour.vendor
    found: dict[str, StaticFile] = {}

    def other_is_on(name: str) -> Callable[[int], str | None]:
        return lambda value: "EINVAL" if value and found[f"proc/sys/{name}"].text == "1\n" else None

    if vendor.startswith("openeuler"):
        found["proc/sys/kernel/qos_overload_detect_period_ms"] = sysctl(5000, 100, 100_000)
        found["proc/sys/kernel/qos_offline_wait_interval_ms"] = sysctl(100, 100, 1000)
        found["proc/sys/vm/memcg_qos_enable"] = sysctl(0, 0, 1)
    if vendor == "openeuler-multi":
        found["proc/sys/kernel/qos_level_weights"] = StaticFile("1\t10\t100\t1000\t10000\n")
    if vendor == "anolis-bvt":
        group_identity, sched_core = "kernel/sched_group_identity_enabled", "kernel/sched_core"
        found[f"proc/sys/{group_identity}"] = sysctl(0, 0, 1, other_is_on(sched_core))
        found[f"proc/sys/{sched_core}"] = sysctl(0, 0, 1, other_is_on(group_identity))
    if vendor == "anolis-priority":
        found["proc/sys/kernel/sched_core"] = sysctl(0, 0, 1)
    if vendor == "tencent":
        found.update({f"proc/offline/cpu{cpu}": sysctl(100, 0, 100) for cpu in range(kernel.cpus)})
    return found
