import errno
import os
import struct

import pytest

from cotenant.kernel.llc import perf
from cotenant.kernel.reading import Findings


class Kernel:
    """Opens events as a kernel would, and answers reads with what a test sets: (enabled, running, counts) by CPU."""

    def __init__(self, refuse=None):
        self.refuse = refuse or (lambda kind, cpu: 0)
        self.counts = {}
        self.cpu_of = {}
        self.opened = []

    def open(self, kind, config, cpu, group):
        code = self.refuse(kind, cpu)
        if code:
            raise OSError(code, os.strerror(code))
        self.opened.append((kind, config, cpu))
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        if group == -1:
            self.cpu_of[descriptor] = cpu
        return descriptor

    def read(self, descriptor, size):
        counts = self.counts.get(self.cpu_of[descriptor])
        if counts is None:
            return b""  # off line
        enabled, running, *events = counts
        return struct.pack(f"={3 + len(events)}Q", len(events), enabled, running, *events)


def make(tree, kernel, online="0-1\n"):
    tree.write("sys/devices/system/cpu/online", online)
    return perf.Perf(tree.root, kernel.open, kernel.read)


def read(counters, seconds=1.0):
    found = Findings()
    counters.read_into(found, seconds)
    return found


def test_ratios_are_of_sums_over_cpus(tree):
    kernel = Kernel()
    kernel.counts = {0: (0, 0, 0, 0, 0, 0), 1: (0, 0, 0, 0, 0, 0)}
    counters = make(tree, kernel)
    assert read(counters, "first_sample").missing == dict.fromkeys(perf.FIELDS, "first_sample")
    kernel.counts = {0: (100, 100, 1000, 100, 50_000, 1), 1: (100, 100, 3000, 900, 150_000, 1)}
    found = read(counters)
    assert (found.values["miss_ratio"], found.values["mpki"]) == (0.25, 5.0)
    counters.close()


def test_counts_are_scaled_by_the_time_they_ran(tree):
    before, after = perf.Counts(100, 50, (10, 10)), perf.Counts(300, 100, (20, 30))
    assert perf.scaled(before, after) == (40.0, 80.0)


@pytest.mark.parametrize("after", [perf.Counts(300, 50, (20, 30)), perf.Counts(300, 100, (5, 30))])
def test_a_group_that_did_not_run_or_was_reset_has_no_count(after):
    assert perf.scaled(perf.Counts(100, 50, (10, 10)), after) is None


def test_counters_that_nobody_let_run_are_unknown(tree):
    kernel = Kernel()
    kernel.counts = {0: (100, 0, 0, 0, 0, 0), 1: (100, 0, 0, 0, 0, 0)}
    counters = make(tree, kernel)
    read(counters, "first_sample")
    kernel.counts = {0: (200, 0, 0, 0, 0, 0), 1: (200, 0, 0, 0, 0, 0)}
    assert read(counters).missing == dict.fromkeys(perf.FIELDS, "not_running")
    counters.close()


def test_a_cpu_goes_off_line_and_comes_back(tree):
    kernel = Kernel()
    kernel.counts = {0: (0, 0, 0, 0, 0, 0), 1: (0, 0, 0, 0, 0, 0)}
    counters = make(tree, kernel)
    read(counters, "first_sample")
    tree.write("sys/devices/system/cpu/online", "0\n")
    kernel.counts = {0: (10, 10, 1000, 500, 50_000, 1)}
    assert read(counters).values["miss_ratio"] == 0.5
    tree.write("sys/devices/system/cpu/online", "0-1\n")
    kernel.counts = {0: (20, 20, 2000, 600, 100_000, 1), 1: (5, 5, 10**9, 10**9, 10**9, 1)}
    assert read(counters).values["miss_ratio"] == 0.1  # no spike from what the CPU counted before
    counters.close()


def test_generic_events_stand_in_for_last_level_loads(tree):
    kernel = Kernel(refuse=lambda kind, cpu: errno.ENOENT if kind == 3 else 0)
    counters = make(tree, kernel, online="0\n")
    read(counters, "first_sample")
    assert kernel.opened == [(0, 2, 0), (0, 3, 0), (0, 1, 0), (0, 0, 0)]
    counters.close()


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.ENOENT, "no_pmu"), (errno.EOPNOTSUPP, "no_pmu"), (errno.EACCES, "permission"), (errno.EINVAL, "io_error")],
)
def test_a_kernel_that_refuses_says_why_and_is_not_asked_again(tree, code, reason):
    asked = []

    def refuse(kind, cpu):
        asked.append(cpu)
        return code

    counters = make(tree, Kernel(refuse))
    assert read(counters).missing == dict.fromkeys(perf.FIELDS, reason)
    before = len(asked)
    assert read(counters).missing == dict.fromkeys(perf.FIELDS, reason)
    assert len(asked) == before


def test_idle_counters_are_too_few():
    assert perf.ratios([(0.0, 0.0, 10.0, 10.0)], True) == dict.fromkeys(perf.FIELDS, "too_few")


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 23, struct.pack("=3Q", 4, 1, 1), struct.pack("=3Q", 99, 1, 1) + b"\0" * 800]
)
def test_short_reads_are_no_counts(data):
    assert perf.parse(data) is None


@pytest.mark.real
def test_this_machine_counts_or_says_no_pmu():
    from cotenant.kernel import paths

    counters = perf.Perf(paths.Root())
    first = read(counters, "first_sample")
    sum(range(100_000))
    found = read(counters, 1.0)
    counters.close()
    assert found.values or set(found.missing.values()) <= {"no_pmu", "permission", "not_running", "too_few"}, first
