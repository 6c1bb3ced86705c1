"""An opt-in probe of the shared cache, for virtual machines that have neither counters nor resctrl.

It loads 4 MiB, waits a millisecond, and times random loads: a neighbour that flushes the cache makes them slow. It
costs 2–3 ms of CPU a second, and is reported as its own signal relative to its own calm baseline, never as a miss
ratio. On bare metal it refuses: there are real counters.
"""

import ctypes
import os
import pathlib
from collections.abc import Callable, Sequence

from cotenant.kernel import errors, paths
from cotenant.kernel.file import File
from cotenant.kernel.reading import Findings
from cotenant.model.sample import MissingReason

PROBE_BYTES = 4 << 20
"""More than a core's own caches, a part of the shared one."""
ROUNDS, LINKS, WAIT_USEC = 5, 2000, 1000
LEARN_READS = 10
"""Readings before the first ratio: the baseline is then their least."""
RISE_PER_READ = 1e-4
"""How fast a baseline rises that is never reached again (moved to another host): it doubles in two hours."""
FALL_SHARE = 0.3
"""How far a baseline falls towards a reading below it: one lucky reading is not the new calm."""

LIBRARIES: Sequence[pathlib.Path] = (
    pathlib.Path(__file__).parents[4] / "build" / "libllc_probe.so",
    pathlib.Path("/usr/local/lib/cotenant/libllc_probe.so"),
)
"""Where ``make native`` puts it, and where an image or an administrator may."""


def is_virtual(root: paths.Root) -> bool:
    """Return whether a hypervisor runs this machine: the CPU says so (x86), or the firmware does (arm64)."""
    for path, words in (
        (root.proc / "cpuinfo", (b" hypervisor",)),
        (root.sys / "class" / "dmi" / "id" / "sys_vendor", (b"QEMU", b"Amazon EC2", b"Google", b"Microsoft", b"KVM")),
        (root.sys / "class" / "dmi" / "id" / "product_name", (b"Virtual", b"KVM", b"HVM", b"OpenStack", b"ECS")),
        (root.sys / "hypervisor" / "type", (b"xen",)),
    ):
        file = File(path)
        try:
            data = file.read()
        except errors.FileError:
            continue
        finally:
            file.close()
        if any(word in data for word in words):
            return True
    return False


class Baseline:
    """The calm latency: the least that was seen lately."""

    def __init__(self) -> None:
        self._calm: float | None = None
        self._reads = 0

    def ratio(self, value: float) -> float | MissingReason:
        """Return a latency ÷ the calm one; ``too_few`` while the calm one is still being learnt."""
        self._reads += 1
        if self._calm is None:
            self._calm = value
        elif self._reads <= LEARN_READS:
            self._calm = min(self._calm, value)
        elif value < self._calm:
            self._calm += (value - self._calm) * FALL_SHARE
        else:
            self._calm = min(self._calm * (1 + RISE_PER_READ), value)
        return "too_few" if self._reads < LEARN_READS else value / self._calm


class Probe:
    """A measure of latency with its baseline."""

    def __init__(self, measure: Callable[[], float]) -> None:
        self._measure = measure
        self._baseline = Baseline()

    def read_into(self, found: Findings) -> None:
        """Measure, and put the ratio."""
        value = self._measure()
        found.put("probe_ratio", self._baseline.ratio(value) if value > 0 else "io_error")


def open_probe(root: paths.Root, libraries: Sequence[pathlib.Path] = LIBRARIES) -> Probe | MissingReason:
    """Return the probe, or why there is none: ``unsupported`` on bare metal, ``not_built`` without the library."""
    if not root.is_machine:
        return "not_enabled"
    if not is_virtual(root):
        return "unsupported"
    for path in libraries:
        if path.exists():
            return _load(os.fspath(path))
    return "not_built"


def _load(path: str) -> Probe | MissingReason:
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return "not_built"  # built for another machine
    library.llc_probe_open.restype = ctypes.c_void_p
    library.llc_probe_open.argtypes = [ctypes.c_size_t]
    library.llc_probe_run.restype = ctypes.c_double
    library.llc_probe_run.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    probe = library.llc_probe_open(PROBE_BYTES)
    if not probe:
        return "io_error"
    return Probe(lambda: float(library.llc_probe_run(probe, ROUNDS, LINKS, WAIT_USEC)))
