"""The sampler: every reader once a period, one sample out of them."""

import datetime
import os

from cotenant.kernel import block, cpu, errors, memory, net, paths, psi, tracing
from cotenant.kernel.file import File
from cotenant.kernel.reading import Reader
from cotenant.model import rate
from cotenant.model.sample import MissingReason, Sample
from cotenant.units import clock as clocks

GROUPS = ("psi", "block", "memory", "cpu", "llc", "net", "online", "offline", "cgroups")


def host_readers(root: paths.Root, feed: tracing.Feed) -> list[Reader]:
    """Return the readers of the whole node."""
    return [
        psi.PsiReader(root),
        memory.MemoryReader(root),
        cpu.CpuReader(root, feed),
        block.BlockReader(root, feed),
        net.NetReader(root),
    ]


class Sampler:
    """Reads a machine once a period. :meth:`prime` reads the counters that the first sample is compared with.

    ``tracer`` belongs to the sampler from then on, or says why there is none.
    """

    def __init__(
        self,
        root: paths.Root | None = None,
        *,
        node: str | None = None,
        period_s: float = 1.0,
        clock: clocks.Clock | None = None,
        tracer: tracing.Tracer | MissingReason = "no_bpf",
    ) -> None:
        self.root = root or paths.Root()
        self.node = node or _node_name(self.root)
        self.period_s = period_s
        self._clock = clock or clocks.SystemClock()
        self._feed = tracing.Feed(tracer)
        self._readers = host_readers(self.root, self._feed)
        self._boot_id = _boot_id(self.root)
        self._last_s: float | None = None

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
        for reader in self._readers:
            reading = reader.read(seconds)
            groups.update(reading.groups)
            missing.update(reading.missing)
        for group in GROUPS:
            if group not in groups:
                missing.setdefault(group, "not_enabled")
        time = self._clock.wall()
        if isinstance(self._boot_id, str):
            boot_id: str | None = self._boot_id
        else:
            boot_id, missing["boot_id"] = None, self._boot_id.reason
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
        for reader in self._readers:
            reader.close()


def open_sampler(
    root: paths.Root,
    *,
    node: str | None = None,
    period_s: float = 1.0,
    clock: clocks.Clock | None = None,
) -> Sampler:
    """Return a sampler with everything that the root allows: BPF only for the machine itself."""
    tracer: tracing.Tracer | MissingReason = "no_bpf"
    if root.is_machine:
        from cotenant.kernel.bpf.tracer import BpfTracer  # loads libbpf: not for a tree of files

        tracer = BpfTracer(root)
    return Sampler(root, node=node, period_s=period_s, clock=clock, tracer=tracer)


def _rfc3339(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _boot_id(root: paths.Root) -> str | errors.KernelError:
    file = File(root.proc / "sys" / "kernel" / "random" / "boot_id")
    try:
        text = file.read().decode("ascii").strip()
    except errors.KernelError as error:
        return error
    except UnicodeDecodeError:
        return errors.MalformedFile(file.path, "not ASCII")
    finally:
        file.close()
    return text or errors.MalformedFile(file.path, "empty")


def _node_name(root: paths.Root) -> str:
    """Return the name of the machine: what its own files say, else what this one is called."""
    file = File(root.proc / "sys" / "kernel" / "hostname")
    try:
        return file.read().decode("utf-8", "replace").strip() or os.uname().nodename
    except errors.KernelError:
        return os.uname().nodename
    finally:
        file.close()
