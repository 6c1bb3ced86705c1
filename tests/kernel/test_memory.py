import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.kernel import errors, memory


def bump(tree, name, by):
    value = next(line.split()[1] for line in tree.read("proc/vmstat").splitlines() if line.startswith(name + " "))
    tree.replace("proc/vmstat", f"\n{name} {value}\n", f"\n{name} {int(value) + by}\n")


def test_counters_become_rates(tree):
    reader = memory.MemoryReader(tree.root)
    reader.read("first_sample")
    for name, by in {
        "pgscan_kswapd": 100,
        "pgscan_direct": 40,
        "pgscan_khugepaged": 2,
        "pgscan_proactive": 1000,  # asked for by user space: no sign of pressure
        "pgscan_direct_throttle": 1000,
        "workingset_refault_anon": 6,
        "workingset_refault_file": 10,
        "pgmajfault": 8,
        "pswpin": 4,
        "pswpout": 2,
        "oom_kill": 3,
    }.items():
        bump(tree, name, by)
    reading = reader.read(2.0)
    values = reading.groups["memory"]
    assert reading.missing == {}
    assert (values.page_scan_per_sec, values.direct_scan_per_sec) == (71.0, 20.0)
    assert (values.refault_per_sec, values.major_fault_per_sec) == (8.0, 4.0)
    assert (values.swap_in_per_sec, values.swap_out_per_sec, values.oom_kills) == (2.0, 1.0, 3)


def test_available_and_free_are_ratios_of_the_total():
    data = b"MemTotal:       1000 kB\nMemFree: 125 kB\nMemAvailable:    250 kB\n"
    assert memory.parse_meminfo(data, "x") == {"available_ratio": 0.25, "free_ratio": 0.125}
    assert memory.parse_meminfo(b"MemTotal: 1000 kB\nMemFree: 500 kB\n", "x") == {
        "available_ratio": "unsupported",
        "free_ratio": 0.5,
    }


@pytest.mark.parametrize("text", [b"", b"MemTotal: 0 kB\n", b"MemTotal: x kB\n", b"MemAvailable: 1 kB\n"])
def test_memory_without_a_total_is_malformed(text):
    with pytest.raises(errors.MalformedFile):
        memory.parse_meminfo(text, "x")


def test_older_kernels_name_counters_otherwise():
    data = b"pgscan_kswapd_dma 1\npgscan_kswapd_normal 2\npgscan_direct_normal 4\nworkingset_refault 8\npgmajfault 1\n"
    counts = memory.parse_vmstat(data, "x")
    assert counts["page_scan_per_sec"] == 7
    assert counts["direct_scan_per_sec"] == 4
    assert counts["refault_per_sec"] == 8
    assert counts["oom_kills"] == "unsupported"


def test_a_bad_number_makes_only_its_own_fields_unknown():
    counts = memory.parse_vmstat(b"pgscan_kswapd x\npgscan_direct 4\npgmajfault -1\npswpin 3\n", "x")
    assert counts["page_scan_per_sec"] == counts["major_fault_per_sec"] == "malformed"
    assert (counts["direct_scan_per_sec"], counts["swap_in_per_sec"]) == (4, 3)


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_bytes_parse(data):
    assert set(memory.parse_vmstat(data, "x")) == set(memory.VMSTAT_FIELDS)


def test_what_is_not_there_is_unsupported(empty):
    assert memory.MemoryReader(empty.root).read(1.0).missing == {"memory": "unsupported"}


def test_a_file_that_was_there_is_gone(tree):
    reader = memory.MemoryReader(tree.root)
    reader.read("first_sample")
    reader.close()
    tree.remove("proc/vmstat")
    reading = reader.read(1.0)
    assert reading.missing["memory.refault_per_sec"] == "gone"
    assert reading.groups["memory"].available_ratio > 0
