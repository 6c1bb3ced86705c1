"""Waits for a CPU, on this machine's scheduler, with work whose waiting is known."""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.process import run
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.kernel import paths
from cotenant.kernel.bpf import btf
from cotenant.kernel.bpf.run_queue import RunQueueProgram
from cotenant.kernel.tracing import GroupTrace
from cotenant.units.histogram import Histogram, bucket_of, representative

pytestmark = pytest.mark.real

SPINNER = "import time\nend = time.monotonic() + float(__import__('sys').argv[1])\nwhile time.monotonic() < end: pass"
SLEEPER = """
import sys, time
for _ in range(int(sys.argv[1])):
    time.sleep(0.001)
print(open("/proc/self/schedstat").read())
"""


@pytest.fixture(params=["stamped", "tracked"])
def run_queue(request, tracer):
    with btf.Btf.of_kernel() as types:
        program = RunQueueProgram(paths.Root(), types, request.param)
    try:
        program.read()
        yield program
    finally:
        program.close()


def pinned(group, cpu: int):
    def enter() -> None:
        group.enter()
        os.sched_setaffinity(0, {cpu})

    return enter


@contextlib.contextmanager
def spinning(group, cpu: int, number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-c", SPINNER, str(3 * PATIENCE_SECONDS)]
    tasks = [subprocess.Popen(command, preexec_fn=pinned(group, cpu)) for _ in range(number)]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.kill()
            task.wait(timeout=PATIENCE_SECONDS)


def total_of(program: RunQueueProgram, seconds: float, inode: int) -> Histogram:
    """Read each half second for so long; return the waits of one group, none of them left out on a busy machine."""
    waits = Histogram()
    program.look_at(0)
    for _ in range(round(seconds / 0.5)):
        time.sleep(0.5)
        waits.merge(program.read()[1].get(inode, GroupTrace()).run_queue)
        program.look_at(0)
    return waits


def test_tasks_that_share_a_cpu_wait_for_each_other(run_queue, group):
    crowd = group("cpu")
    cpu = max(os.sched_getaffinity(0))
    waits, started = Histogram(), time.monotonic()

    def long() -> int:
        """Return how often a task waited for another one's slice, which is milliseconds long."""
        return sum(count for bucket, count in waits.to_json().items() if int(bucket) > bucket_of(1_500))

    def have_waited() -> bool:
        waits.merge(total_of(run_queue, 0.5, crowd.inode))
        return long() >= 200 and waits.quantile(0.95) > 2_000  # starting up a task waits often, and shortly

    with spinning(crowd, cpu, 4):
        await_true(have_waited, "each of four waits for three others' slices", said=lambda: str(waits.to_json()))
        seconds = time.monotonic() - started
    assert long() <= 1_000 * seconds
    assert waits.quantile(0.95) < seconds * 1e6


def test_waits_agree_with_what_the_scheduler_accounts_itself(run_queue, group):
    """The sum of a task's waits is field 2 of its schedstat: the same waits, kept by the kernel."""
    crowd = group("cpu")
    cpu = max(os.sched_getaffinity(0))
    found = []
    with spinning(crowd, cpu, 3) as tasks:
        for _ in range(20):  # the two are not read at once: where a long wait lies between, it is tried again
            time.sleep(0.5)
            run_queue.read()
            before = [schedstat(task.pid) for task in tasks]
            waits = total_of(run_queue, 3, crowd.inode)
            after = [schedstat(task.pid) for task in tasks]
            waited = sum(a[0] - b[0] for a, b in zip(after, before, strict=True)) / 1000
            times = sum(a[1] - b[1] for a, b in zip(after, before, strict=True))
            if not waits.total or not times:
                continue
            found.append((statistics.fmean(_values(waits)), waited / times))
            if found[-1][0] == pytest.approx(found[-1][1], rel=0.15):
                return
    pytest.fail(f"no try agreed; (ours, the scheduler's) mean wait in microseconds: {found}")


def schedstat(pid: int) -> tuple[int, int]:
    """Return nanoseconds waited, and times run."""
    text = (paths.Root().proc / str(pid) / "schedstat").read_text().split()
    return int(text[1]), int(text[2])


def _values(waits: Histogram) -> list[float]:
    return [representative(int(bucket)) for bucket, count in waits.to_json().items() for _ in range(int(count))]


def test_a_task_that_sleeps_is_counted_once_a_wakeup(run_queue, group):
    sleepers = group("cpu")
    found = []
    for _ in range(20):  # a kernel may leave out events: docs/ebpf.md
        run_queue.read()
        run_queue.look_at(0)
        done = run([sys.executable, "-c", SLEEPER, "300"], preexec_fn=sleepers.enter, check=True)
        waits = run_queue.read()[1].get(sleepers.inode, GroupTrace()).run_queue
        # Woken before it has left the queue, a task has not waited; that is rare. Where it waits for others it runs in
        # more pieces than it sleeps; the scheduler says how many.
        found.append((waits.total, int(done.stdout.split()[2])))
        if 285 <= waits.total == pytest.approx(found[-1][1], rel=0.05, abs=30):
            return
    pytest.fail(f"no run agreed; (waits, times that the scheduler says it ran): {found}")


def test_the_whole_node_is_the_sum_of_the_groups(tracer):
    time.sleep(0.5)
    trace = tracer.read()
    assert trace.run_queue.total > 0
    assert trace.run_queue.total == sum(one.run_queue.total for one in trace.cpu_groups.values())
