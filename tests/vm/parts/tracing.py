"""Our eBPF programs in this kernel: what they count beside what was done, and what is left after kill -9."""

import ctypes
import os
import signal
import time
from typing import Any

from tests.vm.parts import work

from cotenant.kernel import paths
from cotenant.kernel.bpf import libbpf
from cotenant.kernel.bpf.block import BlockProgram
from cotenant.kernel.bpf.btf import Btf
from cotenant.kernel.bpf.run_queue import RunQueueProgram
from cotenant.kernel.bpf.tracer import BpfTracer

DISK = "/dev/vda"
WRITES, READS, BLOCK_BYTES = 23, 17, 4096
SLEEPS = 100


def look(root: paths.Root) -> dict[str, Any]:
    loaded_before = programs()
    with Btf.of_kernel() as types:
        arguments = {
            name: types.tracepoint_arguments(name) for name in ("block_rq_issue", "block_rq_complete", "sched_switch")
        }
        found: dict[str, Any] = {"arguments": arguments, "block": block(root, types)}
        found["run queue"] = {method: run_queue(root, types, method) for method in ("stamped", "tracked")}
    found["chosen"] = [[program.name, program.missing, program.detail] for program in chosen(root)]
    found["killed"] = killed(root, loaded_before)
    return found


def chosen(root: paths.Root) -> Any:
    tracer = BpfTracer(root)
    try:
        return tracer.programs
    finally:
        tracer.close()


def block(root: paths.Root, types: Btf) -> dict[str, Any]:
    """Count 23 writes and 17 reads of a group, by group and by disk."""
    mount = root.hierarchy("blkio") or root.hierarchy("io")
    assert mount is not None
    program = BlockProgram(root, types)

    def job() -> None:
        work.direct_io(DISK, WRITES, BLOCK_BYTES, write=True)
        work.direct_io(DISK, READS, BLOCK_BYTES, write=False)

    try:
        with work.group(mount.path / "traced") as group:
            worker = work.Worker(job).enter(group)
            program.disks(), program.groups()
            worker.begin()
            worker.wait()
            status = os.stat(DISK).st_rdev
            disk = program.disks()[(os.major(status), os.minor(status))]
            mine = program.groups()[group.stat().st_ino]
            lost = {**program.lost(), "recursion": program.object.recursion_misses()}
    finally:
        program.close()
    return {
        "group": [mine.writes, mine.write_bytes, mine.reads, mine.read_bytes, mine.block.total],
        "disk": [disk.writes, disk.reads, disk.latency.total, disk.queue.total, disk.device.total, disk.in_flight],
        "p99 usec": disk.latency.quantile(0.99),
        "lost": lost,
    }


def run_queue(root: paths.Root, types: Btf, method: Any) -> dict[str, Any]:
    """Count the waits of a task that sleeps, beside how often the scheduler itself says that it ran."""
    mount = root.hierarchy("cpu")
    assert mount is not None
    program = RunQueueProgram(root, types, method)

    def nap() -> None:
        for _ in range(SLEEPS):
            time.sleep(0.001)
        time.sleep(work.SECONDS)

    try:
        with work.group(mount.path / "traced") as group:
            worker = work.Worker(nap).enter(group)
            time.sleep(0.2)
            program.read()
            program.look_at(0)
            before = worker.schedstat()
            worker.begin()
            work.wait(lambda: worker.schedstat()[2] - before[2] >= SLEEPS)
            time.sleep(0.5)  # it has gone to sleep for long
            waits = program.read()[1][group.stat().st_ino].run_queue
            after = worker.schedstat()
            worker.kill()
        with work.group(mount.path / "crowded") as group, work.spinning(3, 1, group) as workers:
            time.sleep(0.3)
            program.read()
            program.look_at(0)
            was = [one.schedstat() for one in workers]
            time.sleep(1.5)
            crowd = program.read()[1][group.stat().st_ino].run_queue
            now = [one.schedstat() for one in workers]
    finally:
        program.close()
    waited = sum(b[1] - a[1] for a, b in zip(was, now, strict=True)) / 1000
    times = sum(b[2] - a[2] for a, b in zip(was, now, strict=True))
    return {
        "waits": waits.total,
        "times run": after[2] - before[2],
        "crowd": [crowd.total, times],
        "crowd p50 usec": crowd.quantile(0.5),
        "crowd mean usec": waited / times if times else None,
    }


def killed(root: paths.Root, before: set[int]) -> dict[str, int]:
    """Kill a process that has our programs loaded; return how many are in the kernel meanwhile, and afterwards."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        tracer = BpfTracer(root)
        os.write(told, b"r" if all(program.missing is None for program in tracer.programs) else b"m")
        time.sleep(work.SECONDS)
        os._exit(0)
    os.read(ready, 1)
    with_it = len(programs() - before)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    work.wait(lambda: not programs() - before, 0.1)  # the kernel frees them a grace period later
    return {"while it ran": with_it, "left": len(programs() - before)}


def programs() -> set[int]:
    """Return the ids of all BPF programs in the kernel."""
    found: set[int] = set()
    number = ctypes.c_uint32(0)
    while libbpf.library().bpf_prog_get_next_id(number, ctypes.byref(number)) == 0:
        found.add(number.value)
    return found
