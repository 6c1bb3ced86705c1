import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.kernel import block, errors, tracing
from cotenant.units.histogram import Histogram


def line(name, counts="10 0 80 5 20 0 160 9 1 8 14 0 0 0 0 0 0", device="8 0"):
    return f"   {device} {name} {counts}\n"


def reader_of(tree, tracer="no_bpf"):
    feed = tracing.Feed(tracer)
    return block.BlockReader(tree.root, feed), feed


def test_counts_become_rates_and_percentiles_stay_unknown(tree):
    reader, _ = reader_of(tree)
    tree.write("proc/diskstats", line("vda", device="254 0"))
    reader.read("first_sample")
    tree.write("proc/diskstats", line("vda", "14 0 180 5 30 0 1160 9 3 8 14 0 0 0 0 0 0", "254 0"))
    reading = reader.read(2.0)
    values, disk = reading.groups["block"], reading.groups["block"].devices["vda"]
    assert (values.source, values.completions, values.p99_usec, values.histogram) == ("diskstats", 14, None, None)
    assert reading.missing == {"block": "no_bpf"}
    assert (disk.kind, disk.completions, disk.in_flight) == ("cloud", 14, 3)
    assert (disk.read_iops, disk.write_iops) == (2.0, 5.0)
    assert (disk.read_bytes_per_sec, disk.write_bytes_per_sec) == (25600.0, 256000.0)


def test_a_disk_that_hangs_shows_without_a_tracer(tree):
    reader, _ = reader_of(tree)

    def age_after(seconds, counts):
        tree.write("proc/diskstats", line("vda", counts, "254 0"))
        return reader.read(seconds).groups["block"].devices["vda"].oldest_in_flight_usec

    idle, hung = "10 0 80 5 20 0 160 9 0 8 14 0 0 0 0 0 0", "10 0 80 5 20 0 160 9 3 8 14 0 0 0 0 0 0"
    assert age_after("first_sample", idle) is None
    assert age_after(1.0, hung) is None  # seen for the first time: nobody knows since when
    assert age_after(1.0, hung) == 1e6
    assert age_after(1.5, hung) == 2.5e6
    assert age_after(1.0, hung.replace("10", "11", 1)) is None  # it answers
    assert age_after(1.0, hung.replace("10", "11", 1)) == 1e6
    assert age_after(1.0, hung.replace("10", "11", 1).replace("0 0 0 0 0 0", "1 0 0 0 0 0")) is None  # a discard
    assert age_after(1.0, idle.replace("10", "11", 1)) is None


def test_a_number_in_flight_that_the_kernel_lost_count_of_is_no_hang(tree):
    reader, _ = reader_of(tree)
    for seconds in ("first_sample", 1.0, 1.0, 1.0):
        tree.write("proc/diskstats", line("vda", "10 0 80 5 20 0 160 9 2 8 14 0 0 0 0 0 0", "254 0"))
        assert reader.read(seconds).groups["block"].devices["vda"].oldest_in_flight_usec is None
    for age in (None, 1e6):  # one more waits for an answer
        tree.write("proc/diskstats", line("vda", "10 0 80 5 20 0 160 9 3 8 14 0 0 0 0 0 0", "254 0"))
        assert reader.read(1.0).groups["block"].devices["vda"].oldest_in_flight_usec == age


def test_captured_disks_are_those_of_the_lowest_level(tree):
    reader, _ = reader_of(tree)
    assert list(reader.read("first_sample").groups["block"].devices) == ["vda"]


def test_a_disk_that_appears_or_goes_makes_no_spike(tree):
    reader, _ = reader_of(tree)
    tree.remove("sys/block")
    tree.write("proc/diskstats", line("sda") + line("sdb", device="8 16"))
    reader.read("first_sample")
    tree.write("proc/diskstats", line("sda") + line("sdc", "9" * 9 + " 0" * 16, "8 32"))
    reading = reader.read(1.0)
    assert reading.groups["block"].completions == 0
    assert list(reading.groups["block"].devices) == ["sda", "sdc"]
    assert reading.missing["block.devices.sdc.read_iops"] == "first_sample"


def test_another_disk_of_the_same_name_starts_anew(tree):
    reader, _ = reader_of(tree)
    tree.remove("sys/block")
    tree.write("proc/diskstats", line("sda"))
    reader.read("first_sample")
    tree.write("proc/diskstats", line("sda", "9" * 9 + " 0" * 16, "8 48"))
    assert reader.read(1.0).missing["block.devices.sda.completions"] == "first_sample"


def test_a_counter_that_falls_is_a_reset(tree):
    reader, _ = reader_of(tree)
    tree.write("proc/diskstats", line("vda"))
    reader.read("first_sample")
    tree.write("proc/diskstats", line("vda", "1" + " 0" * 16))
    reading = reader.read(1.0)
    assert reading.missing["block.completions"] == reading.missing["block.devices.vda.write_iops"] == "reset"


def test_a_broken_line_makes_its_disk_unknown(tree):
    reader, _ = reader_of(tree)
    tree.remove("sys/block")
    tree.write("proc/diskstats", line("sda") + line("sdb", "1 2 x" + " 0" * 14, "8 16") + "8 32 sdc 1 2\n")
    reader.read("first_sample")
    reading = reader.read(1.0)
    assert reading.groups["block"].devices["sda"].completions == 0
    assert (
        reading.missing["block.devices.sdb.completions"]
        == reading.missing["block.devices.sdc.in_flight"]
        == "malformed"
    )


def test_in_flight_below_zero_is_unknown(tree):
    reader, _ = reader_of(tree)
    tree.write("proc/diskstats", line("vda", f"10 0 80 5 20 0 160 9 {2**32 - 1} 8 14"))
    assert reader.read("first_sample").missing["block.devices.vda.in_flight"] == "malformed"


def test_no_file_is_unsupported_and_nonsense_is_malformed(empty):
    reader, _ = reader_of(empty)
    assert reader.read(1.0).missing == {"block": "unsupported"}
    empty.write("proc/diskstats", "what is this\n")
    assert reader.read(1.0).missing == {"block": "malformed"}


def test_a_machine_without_disks_has_none_complete(empty):
    empty.write("proc/diskstats", "")
    reader, _ = reader_of(empty)
    assert reader.read(1.0).groups["block"].completions == 0


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_parse_or_are_malformed(data):
    try:
        assert all(isinstance(name, str) for name in block.parse(data, "x"))
    except errors.MalformedFile as error:
        assert "MAJOR MINOR NAME" in str(error)  # noqa: PT017


class Traced:
    """A tracer that saw these disks."""

    def __init__(self, disks):
        self.disks = disks

    def read(self):
        return tracing.Trace(self.disks, "no_bpf", "no_bpf", "no_bpf")

    def close(self):
        pass


def traced(tree, disks):
    reader, feed = reader_of(tree, Traced(disks))
    reader.read("first_sample")
    feed.refresh()
    return reader.read(2.0)


def test_a_tracer_gives_percentiles_and_the_histogram(tree):
    latency = Histogram.of([100.0] * 98 + [5000.0] * 2)
    seen = tracing.DiskTrace(
        latency=latency,
        device=Histogram.of([4980.0]),
        queue=Histogram.of([20.0]),
        reads=60,
        writes=40,
        read_bytes=4096,
        write_bytes=8192,
        in_flight=2,
        oldest_in_flight_usec=700.0,
    )
    reading = traced(tree, {(254, 0): seen})
    values, disk = reading.groups["block"], reading.groups["block"].devices["vda"]
    assert (values.source, values.completions) == ("bpf", 100)
    assert Histogram.from_json(values.histogram) == latency
    assert values.p50_usec == pytest.approx(100, rel=0.05)
    assert values.p99_usec == disk.p99_usec == pytest.approx(5000, rel=0.05)
    assert (disk.read_iops, disk.write_iops, disk.write_bytes_per_sec) == (30.0, 20.0, 4096.0)
    assert (disk.in_flight, disk.oldest_in_flight_usec) == (2, 700.0)
    assert disk.queue_p99_usec == pytest.approx(20, rel=0.05)
    assert disk.device_p99_usec == pytest.approx(4980, rel=0.05)


def test_a_disk_that_completes_nothing_is_as_slow_as_its_oldest_request(tree):
    reading = traced(tree, {(254, 0): tracing.DiskTrace(in_flight=1, oldest_in_flight_usec=3e6)})
    assert reading.groups["block"].completions == 0
    assert reading.groups["block"].p99_usec == reading.groups["block"].devices["vda"].p50_usec == 3e6
    assert reading.groups["block"].histogram == {}


def test_an_idle_disk_completes_none_and_has_no_percentile(tree):
    reading = traced(tree, {})
    assert reading.groups["block"].devices["vda"].completions == 0
    assert reading.missing["block.p99_usec"] == "too_few"


def test_without_programs_the_reason_is_the_tracers(tree):
    assert traced(tree, "no_libbpf").missing == {"block": "no_libbpf"}
