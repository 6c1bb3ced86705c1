import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.kernel import cpu, errors, schedstat, tracing
from cotenant.units.histogram import Histogram


def text(*waits):
    lines = [f"cpu{n} 0 0 0 0 0 0 5000 {waited} {slices}\ndomain0 3 1 2 3" for n, (waited, slices) in enumerate(waits)]
    return "\n".join(["version 15", "timestamp 4294", *lines]) + "\n"


def means(tree, *texts):
    reader, found = schedstat.Schedstat(tree.root), []
    for index, content in enumerate(texts):
        if content is not None:
            tree.write("proc/schedstat", content)
        found.append(reader.mean_usec(1.0 if index else "first_sample"))
    reader.close()
    return found


def test_the_mean_is_over_all_cpus_and_one_period(tree):
    assert means(tree, text((1000, 10), (0, 0)), text((61_000, 20), (40_000, 10))) == ["first_sample", 5.0]


def test_nobody_waited(tree):
    assert means(tree, text((1000, 10)), text((1000, 10))) == ["first_sample", 0.0]


def test_a_reset_is_unknown(tree):
    assert means(tree, text((9000, 90)), text((10, 1)))[1] == "reset"


def test_a_kernel_without_it(tree):
    assert means(tree, None) == ["unsupported"]


@pytest.mark.parametrize("content", ["", "version 15\n", "cpu0 1 2 3\n", "cpu0 0 0 0 0 0 0 1 x 2\n"])
def test_other_text_is_malformed(content):
    with pytest.raises(errors.MalformedFile):
        schedstat.parse(content.encode(), "x")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_malformed(data):
    try:
        waited, slices = schedstat.parse(data, "x")
    except errors.MalformedFile:
        return
    assert waited >= 0
    assert slices >= 0


def sample_twice(tree, feed):
    reader = cpu.CpuReader(tree.root, feed)
    tree.write("proc/stat", "cpu  1 0 0 1 0 0 0 0\ncpu0 1\n")
    tree.write("proc/schedstat", text((0, 0)))
    reader.read("first_sample")
    tree.write("proc/schedstat", text((8000, 2)))
    return reader.read(1.0)


def test_without_a_tracer_the_source_is_schedstat_and_percentiles_are_not_made_up(tree):
    reading = sample_twice(tree, tracing.Feed("no_libbpf"))
    assert reading.groups["cpu"].source == "schedstat"
    assert reading.groups["cpu"].run_queue_latency_mean_usec == 4.0
    assert reading.groups["cpu"].run_queue_latency_p99_usec is None
    assert reading.missing["cpu.run_queue_latency_p99_usec"] == "no_libbpf"


def test_with_a_tracer_it_is_not_read(tree):
    feed = tracing.Feed("no_bpf")
    feed.trace = tracing.Trace(
        run_queue=Histogram.of([10.0]), disks="no_bpf", block_groups="no_bpf", cpu_groups="no_bpf"
    )
    reading = sample_twice(tree, feed)
    assert reading.groups["cpu"].source == "bpf"
    assert reading.missing["cpu.run_queue_latency_mean_usec"] == "not_enabled"
