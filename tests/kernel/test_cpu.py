import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.kernel import cpu, errors, tracing
from cotenant.units.histogram import Histogram

BEFORE = "cpu  100 10 50 1000 20 5 8 7 30 3\ncpu0 1 0 0 0 0 0 0 0 0 0\ncpu1 1 0 0 0 0 0 0 0 0 0\n"


def stat(first, interrupts=1000, softirqs=500, cpus=2):
    lines = [f"cpu  {first}", *(f"cpu{n} 1 0 0 0 0 0 0 0 0 0" for n in range(cpus))]
    return "\n".join([*lines, f"intr {interrupts} 0 9 9", "ctxt 5", f"softirq {softirqs} 1 2"]) + "\n"


def readings(tree, *texts, feed=None):
    feed = feed or tracing.Feed("no_bpf")
    reader, result = cpu.CpuReader(tree.root, feed), []
    for index, text in enumerate(texts):
        tree.write("proc/stat", text)
        result.append(reader.read(2.0 if index else "first_sample"))
    return result


def test_ratios_are_of_all_time_and_steal_is_apart(tree):
    _, reading = readings(
        tree, stat("100 10 50 1000 20 5 8 7 30 3"), stat("140 20 70 1080 30 10 13 37 60 8", 1400, 700)
    )
    values = reading.groups["cpu"]  # grown: 40 10 20 80 10 5 5 30 = 200; guest time is in user already
    assert values.used_ratio == (40 + 10 + 20 + 5 + 5) / 200
    assert values.user_ratio == 50 / 200
    assert (values.system_ratio, values.iowait_ratio, values.steal_ratio) == (0.1, 0.05, 0.15)
    assert (values.irq_ratio, values.softirq_ratio) == (0.025, 0.025)
    assert (values.interrupts_per_sec, values.softirqs_per_sec) == (200.0, 100.0)
    assert (values.online, values.source) == (2, "stat")


def test_counters_that_stand_still_are_zero(tree):
    _, reading = readings(tree, stat("1 2 3 4 5 6 7 8"), stat("1 2 3 4 5 6 7 8"))
    assert reading.groups["cpu"].used_ratio == reading.groups["cpu"].steal_ratio == 0.0


def test_a_cpu_that_goes_off_line_is_seen(tree):
    _, reading = readings(tree, stat("100 0 0 100 0 0 0 0", cpus=4), stat("150 0 0 150 0 0 0 0", cpus=3))
    assert (reading.groups["cpu"].online, reading.groups["cpu"].used_ratio) == (3, 0.5)


def test_iowait_that_falls_is_unknown_alone(tree):
    _, reading = readings(tree, stat("100 0 0 100 50 0 0 0"), stat("150 0 0 150 40 0 0 0"))
    assert reading.missing["cpu.iowait_ratio"] == "reset"
    assert reading.groups["cpu"].used_ratio == 0.5


def test_user_time_that_falls_is_a_reset(tree):
    _, reading = readings(tree, stat("100 0 0 100 0 0 0 0"), stat("10 0 0 150 0 0 0 0"))
    assert {reading.missing[f"cpu.{field}"] for field in cpu.RATIOS} == {"reset"}


def test_old_kernels_have_fewer_columns(tree):
    _, reading = readings(tree, stat("100 0 0 100"), stat("150 0 0 150"))
    assert reading.missing["cpu.steal_ratio"] == "unsupported"
    assert reading.groups["cpu"].user_ratio == 0.5


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu 1 2 3\n", "cpu  1 2 3 x 5\ncpu0 1\n", "cpu  1 2 3 4 5\n", "\xff\n"])
def test_other_text_is_malformed(text):
    with pytest.raises(errors.MalformedFile):
        cpu.parse(text.encode("latin-1"), "x")


@given(st.binary(max_size=200).map(lambda tail: b"cpu  1 2 3 4 5 6 7 8\ncpu0 1\n" + tail))
@settings(max_examples=100, deadline=None)
def test_any_tail_parses(data):
    assert cpu.parse(data, "x").online >= 1


def test_a_missing_file_makes_all_unknown(empty):
    assert cpu.CpuReader(empty.root, tracing.Feed("no_bpf")).read(1.0).missing == {"cpu": "unsupported"}


class Traced:
    """A tracer that saw these run-queue waits."""

    def __init__(self, waits):
        self.waits = waits

    def read(self):
        return tracing.Trace("no_bpf", self.waits, "no_bpf", "no_bpf")

    def close(self):
        pass


def test_run_queue_latency_comes_from_the_tracer(tree):
    feed = tracing.Feed(Traced(Histogram.of([10.0] * 98 + [1000.0] * 2)))
    feed.refresh()
    _, reading = readings(tree, stat("1 2 3 4"), stat("1 2 3 4"), feed=feed)
    values = reading.groups["cpu"]
    assert values.source == "bpf"
    assert values.run_queue_latency_p95_usec == pytest.approx(10, rel=0.05)
    assert values.run_queue_latency_p99_usec == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize(("waits", "reason"), [(Histogram(), "too_few"), ("no_btf", "no_btf")])
def test_run_queue_latency_that_nobody_saw_is_unknown(tree, waits, reason):
    feed = tracing.Feed(Traced(waits))
    feed.refresh()
    _, reading = readings(tree, stat("1 2 3 4"), stat("1 2 3 4"), feed=feed)
    assert reading.missing["cpu.run_queue_latency_p99_usec"] == reason
