"""All of cotenant's programs as one tracer; what does not load here is unknown with its reason, the rest works."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from typing import TypeVar

from cotenant.kernel import errors, paths
from cotenant.kernel.bpf.block import BlockProgram
from cotenant.kernel.bpf.btf import Btf
from cotenant.kernel.bpf.cost import Cost
from cotenant.kernel.bpf.errors import BpfUnavailable
from cotenant.kernel.bpf.program import Object
from cotenant.kernel.bpf.run_queue import RunQueueProgram
from cotenant.kernel.tracing import Trace
from cotenant.model.loss import Loss
from cotenant.model.sample import MissingReason

P = TypeVar("P")


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """One object's state, for ``cotenant check`` and metrics."""

    name: str
    missing: MissingReason | None
    """Why it is not loaded; None when it is."""
    detail: str
    """What failed, or by which method it works."""
    cost: Cost | None
    """None until it was measured, or where the kernel does not let us."""


class BpfTracer:
    """Loads what this machine allows. Never raises: :attr:`programs` and the trace say what is missing and why."""

    def __init__(self, root: paths.Root) -> None:
        self._block: BlockProgram | errors.KernelError
        self._run_queue: RunQueueProgram | errors.KernelError
        try:
            types = _types(root)
        except errors.KernelError as error:
            self._block = self._run_queue = error
        else:
            with types:
                self._block = _loaded(BlockProgram, root, types)
                self._run_queue = _loaded(RunQueueProgram, root, types)
        self._read_at: float | None = None

    def read(self) -> Trace | MissingReason:
        """Return what happened since the last read, or why nothing is known."""
        block, run_queue = self._block, self._run_queue
        if isinstance(block, errors.KernelError) and isinstance(run_queue, errors.KernelError):
            return block.reason
        now = time.monotonic()
        seconds, self._read_at = None if self._read_at is None else now - self._read_at, now
        trace = Trace("no_bpf", "no_bpf", "no_bpf", "no_bpf")
        if isinstance(block, errors.KernelError):
            trace.disks = trace.block_groups = block.reason
        else:
            _read_block(block, trace, seconds)
        if isinstance(run_queue, errors.KernelError):
            trace.run_queue = trace.cpu_groups = run_queue.reason
        else:
            _read_run_queue(run_queue, trace, seconds)
        return trace

    @property
    def programs(self) -> tuple[Program, ...]:
        """What is loaded, what is not and why, and what it costs."""
        return (
            _state("block", self._block, "issue and complete"),
            _state("run_queue", self._run_queue, getattr(self._run_queue, "method", "")),
        )

    @property
    def core_ratio(self) -> float | None:
        """The programs' run time while it was measured last, as a share of one CPU; None before that."""
        costs = [program.cost.cpu_ratio for program in self.programs if program.cost is not None]
        return sum(costs) * (os.cpu_count() or 1) if costs else None

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What the loaded programs missed, by reason; without those that the kernel does not tell."""
        found: list[Loss] = []
        for part in (self._block, self._run_queue):
            if not isinstance(part, errors.KernelError):
                found += _losses(part)
        return tuple(found)

    @property
    def objects(self) -> tuple[Object, ...]:
        """The objects that are loaded."""
        return tuple(p.object for p in (self._block, self._run_queue) if not isinstance(p, errors.KernelError))

    def close(self) -> None:
        """Take the programs out of the kernel."""
        for part in (self._block, self._run_queue):
            if not isinstance(part, errors.KernelError):
                part.close()


def _types(root: paths.Root) -> Btf:
    if not root.is_machine:
        raise BpfUnavailable("no_bpf", f"{root.directory}: not this machine, so no BPF")
    return Btf.of_kernel()


def _loaded(program: Callable[[paths.Root, Btf], P], root: paths.Root, types: Btf) -> P | errors.KernelError:
    try:
        return program(root, types)
    except errors.KernelError as error:
        return error


def _read_block(block: BlockProgram, trace: Trace, seconds: float | None) -> None:
    try:
        block.meter.tick(seconds)
        trace.disks = block.disks()
        trace.block_groups = block.groups()
    except errors.KernelError as error:
        trace.disks = trace.block_groups = error.reason


def _read_run_queue(run_queue: RunQueueProgram, trace: Trace, seconds: float | None) -> None:
    try:
        run_queue.meter.tick(seconds)
        trace.run_queue, trace.cpu_groups = run_queue.read()
    except errors.KernelError as error:
        trace.run_queue = trace.cpu_groups = error.reason


def _losses(part: BlockProgram | RunQueueProgram) -> list[Loss]:
    name, found = part.object.name, []
    with contextlib.suppress(errors.KernelError):  # what cannot be read is absent: it is not 0
        found = [Loss(name, reason, events) for reason, events in part.lost().items()]
    with contextlib.suppress(errors.KernelError):
        misses = part.object.recursion_misses()
        if misses is not None:
            found.append(Loss(name, "recursion", misses))
    return found


def _state(name: str, part: BlockProgram | RunQueueProgram | errors.KernelError, detail: str) -> Program:
    if isinstance(part, errors.KernelError):
        return Program(name, part.reason, str(part), None)
    return Program(name, None, detail, part.meter.cost)
