import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.kernel import errors, net

HEADER = "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo |bytes\n"


def softnet(*cpus):
    return "".join(f"00000010 {d:08x} {s:08x} " + "00000000 " * 9 + f"{cpu:08x}\n" for cpu, d, s in cpus)


def dev(**drops):
    return HEADER + "".join(f"{n:>6}:1 2 0 {rx} 0 0 0 0 1 2 0 {tx} 0 0 0 0\n" for n, (rx, tx) in drops.items())


def second(tree, before, after):
    reader = net.NetReader(tree.root)
    for file, text in before.items():
        tree.write(f"proc/net/{file}", text)
    reader.read("first_sample")
    for file, text in after.items():
        tree.write(f"proc/net/{file}", text)
    return reader.read(2.0)


def test_backlog_counters_are_hexadecimal_and_summed(tree):
    before, after = softnet((0, 0x10, 1), (1, 0, 0)), softnet((0, 0x1A, 5), (1, 2, 4))
    values = second(tree, {"softnet_stat": before}, {"softnet_stat": after}).groups["net"]
    assert (values.softnet_dropped_per_sec, values.softnet_squeezed_per_sec) == (6.0, 4.0)


def test_a_32_bit_counter_may_wrap(tree):
    before, after = softnet((0, 2**32 - 2, 0)), softnet((0, 2, 0))
    assert second(tree, {"softnet_stat": before}, {"softnet_stat": after}).groups["net"].softnet_dropped_per_sec == 2.0


def test_a_cpu_that_goes_or_comes_makes_no_spike(tree):
    before, after = softnet((0, 5, 0), (1, 900, 0)), softnet((0, 7, 0), (2, 5000, 0))
    assert second(tree, {"softnet_stat": before}, {"softnet_stat": after}).groups["net"].softnet_dropped_per_sec == 1.0


def test_only_physical_cards_count(tree):
    before = dev(lo=(0, 0), eth0=(1, 1), ifb0=(0, 0))
    after = dev(lo=(90, 0), eth0=(4, 2), ifb0=(80, 0))
    assert second(tree, {"dev": before}, {"dev": after}).groups["net"].nic_dropped_per_sec == 2.0


def test_without_sysfs_names_tell_cards(tree):
    tree.remove("sys/class")
    before = dev(lo=(0, 0), ens3=(0, 0), veth1a=(0, 0), docker0=(0, 0), bond0=(0, 0), cali12=(0, 0))
    after = dev(lo=(1, 1), ens3=(6, 0), veth1a=(9, 9), docker0=(9, 9), bond0=(6, 0), cali12=(9, 9))
    assert second(tree, {"dev": before}, {"dev": after}).groups["net"].nic_dropped_per_sec == 3.0


def test_a_machine_without_cards_has_no_drops_to_know(tree):
    assert second(tree, {"dev": dev(lo=(0, 0))}, {}).missing == {"net.nic_dropped_per_sec": "unsupported"}


@pytest.mark.parametrize("text", ["", "zz 1 2\n", "1 2\n", "00000010 00000000 123456789\n"])
def test_other_softnet_text_is_malformed(text):
    with pytest.raises(errors.MalformedFile):
        net.parse_softnet(text.encode(), "x")


@pytest.mark.parametrize(
    "text", ["", "a\nb\n", HEADER + "eth0: 1 2 3\n", HEADER + "eth0:1 2 0 x 0 0 0 0 1 2 0 0 0 0 0 0\n"]
)
def test_other_dev_text_is_malformed(text):
    with pytest.raises(errors.MalformedFile):
        net.parse_dev(text.encode(), "x")


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_parse_or_are_malformed(data):
    for parse in (net.parse_softnet, net.parse_dev):
        try:
            parse(data, "x")
        except errors.MalformedFile as error:
            assert error.reason == "malformed"  # noqa: PT017


def test_missing_files(empty):
    assert net.NetReader(empty.root).read(1.0).missing == {"net": "unsupported"}
