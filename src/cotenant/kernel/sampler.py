"""The sampler: every reader once a period, one sample out of them."""

import datetime
import os
import re
import resource
from collections.abc import Mapping, Sequence

from cotenant.kernel import block, cpu, errors, memory, net, paths, psi, tracing
from cotenant.kernel.cgroup import classes
from cotenant.kernel.cgroup import reader as cgroups
from cotenant.kernel.file import File
from cotenant.kernel.llc import perf, probe, resctrl
from cotenant.kernel.llc import reader as llc
from cotenant.kernel.reading import reason_of
from cotenant.kernel.watch import Slot, Watch
from cotenant.model import rate
from cotenant.model.loss import Loss
from cotenant.model.sample import MissingReason, Sample
from cotenant.units import clock as clocks

MIN_DEADLINE_SECONDS = 2.0
"""A read that takes longer hangs. An overloaded machine is slower than usual, and must not look like a hung one."""
MAX_DESCRIPTORS = 32768
_WORD = re.compile("[!-~]{1,253}")
"""A name or an identity as a kernel gives it; anything else in its place would break what prints it."""


class Sampler:
    """Reads a machine once a period. :meth:`prime` reads the counters that the first sample is compared with.

    ``tracer`` belongs to the sampler from then on, or says why there is none. A reader that has not come back after
    ``deadline_s`` is left behind, and its groups are ``stale`` until it does; None waits for ever.
    """

    def __init__(
        self,
        root: paths.Root | None = None,
        *,
        node: str | None = None,
        period_s: float = 1.0,
        clock: clocks.Clock | None = None,
        tracer: tracing.Tracer | MissingReason = "no_bpf",
        matches: Sequence[classes.Match] = (),
        counters: perf.Perf | MissingReason = "no_pmu",
        probing: probe.Probe | MissingReason = "not_enabled",
        deadline_s: float | None = None,
    ) -> None:
        self.root = root or paths.Root()
        self.node = node or _node_name(self.root)
        self.period_s = period_s
        self._clock = clock or clocks.SystemClock()
        self._feed = tracing.Feed(tracer)
        cpus, blocks = cpu.CpuReader(self.root, self._feed), block.BlockReader(self.root, self._feed)
        self._cgroups = cgroups.CgroupReader(
            self.root,
            self._feed,
            cpus=lambda: cpus.online,
            disks=lambda: blocks.accounted,
            now=self._clock.monotonic,
            matches=matches,
        )
        # Groups last: they take the number of CPUs and the disks that count from the readers before them.
        slots = (
            Slot(("psi",), psi.PsiReader(self.root)),
            Slot(("memory",), memory.MemoryReader(self.root)),
            Slot(("cpu",), cpus),
            Slot(("block",), blocks),
            Slot(("net",), net.NetReader(self.root)),
            Slot(("llc",), llc.LlcReader(counters, resctrl.Resctrl(self.root), probing)),
            Slot(("online", "offline", "cgroups"), self._cgroups),
        )
        self._watch = Watch(slots, deadline_s)
        self._boot_id = _boot_id(self.root)
        self._last_s: float | None = None

    @property
    def bpf_core_ratio(self) -> float | None:
        """CPU time of our BPF programs as a share of one CPU; None before it was measured, or where none runs."""
        return self._feed.core_ratio

    @property
    def bpf_losses(self) -> tuple[Loss, ...]:
        """Events that our BPF programs could not count, since they were loaded; empty where none runs."""
        return self._feed.losses

    def label(self, labels: Mapping[str, classes.Label]) -> None:
        """Take the classes and names of groups, by path, from whoever knows the pods; in place of those before."""
        self._cgroups.label(labels)

    def prime(self) -> None:
        """Read once, so that the next :meth:`sample` has something to compare with."""
        self.sample()

    def sample(self) -> Sample:
        """Return what happened since the last read; every rate is unknown (``first_sample``) when there was none."""
        now = self._clock.monotonic()
        seconds = rate.elapsed(self._last_s, now, self.period_s)
        self._last_s = now
        self._feed.refresh()
        groups: dict[str, object] = {}
        missing: dict[str, MissingReason] = {}
        for reading in self._watch.read(seconds):
            groups.update(reading.groups)
            missing.update(reading.missing)
        time = self._clock.wall()
        boot_id, why = self._boot_id
        if boot_id is None:
            missing["boot_id"] = why
        period_s = None if isinstance(seconds, str) else seconds
        if isinstance(seconds, str):
            missing["period_s"] = seconds
        return Sample(
            node=self.node,
            boot_id=boot_id,
            uptime_s=now,
            time=_rfc3339(time),
            period_s=period_s,
            missing=missing,
            **groups,  # type: ignore[arg-type]
        )

    def close(self) -> None:
        """Release every reader's descriptors, and the tracer."""
        self._feed.close()
        self._watch.close()


def open_sampler(
    root: paths.Root,
    *,
    node: str | None = None,
    period_s: float = 1.0,
    clock: clocks.Clock | None = None,
    matches: Sequence[classes.Match] = (),
    llc_probe: bool = False,
) -> Sampler:
    """Return a sampler with everything that the root allows: BPF, performance events and the probe for the machine."""
    if not root.is_machine:
        return Sampler(root, node=node, period_s=period_s, clock=clock, matches=matches)
    _raise_descriptor_limit()
    from cotenant.kernel.bpf.tracer import BpfTracer  # loads libbpf: not for a tree of files

    return Sampler(
        root,
        node=node,
        period_s=period_s,
        clock=clock,
        tracer=BpfTracer(root),
        matches=matches,
        counters=perf.Perf(root),
        probing=probe.open_probe(root) if llc_probe else "not_enabled",
        deadline_s=max(2 * period_s, MIN_DEADLINE_SECONDS),
    )


def _raise_descriptor_limit() -> None:
    """Let this process keep as many files open as it is allowed to: some eight for each control group."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, MAX_DESCRIPTORS) if hard != resource.RLIM_INFINITY else MAX_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _rfc3339(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _boot_id(root: paths.Root) -> tuple[str | None, MissingReason]:
    """Return the boot's identity, or None and why it is unknown."""
    file = File(root.proc / "sys" / "kernel" / "random" / "boot_id")
    try:
        text = file.read().decode("latin-1").strip()
    except errors.KernelError as error:
        return None, reason_of(error, file)
    finally:
        file.close()
    return text if _WORD.fullmatch(text) else None, "malformed"


def _node_name(root: paths.Root) -> str:
    """Return the name of the machine: what its own files say, else what this one is called."""
    file = File(root.proc / "sys" / "kernel" / "hostname")
    try:
        text = file.read().decode("latin-1").strip()
    except errors.KernelError:
        text = ""
    finally:
        file.close()
    return text if _WORD.fullmatch(text) else os.uname().nodename
