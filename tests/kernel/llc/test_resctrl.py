import pytest

from cotenant.kernel.llc import resctrl
from cotenant.kernel.reading import Findings


def fill(tree, group, domain, occupancy, total):
    data = f"sys/fs/resctrl/{group}mon_data/mon_L3_{domain:02d}"
    tree.write(f"{data}/llc_occupancy", f"{occupancy}\n")
    tree.write(f"{data}/mbm_total_bytes", f"{total}\n")


@pytest.fixture
def monitored(empty):
    empty.write("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\n")
    fill(empty, "", 0, 1000, 50)
    fill(empty, "", 1, 2000, 60)
    fill(empty, "batch/", 0, 10, 70)
    fill(empty, "batch/mon_groups/a/", 0, 9, 70)  # is in its control group's sum
    return empty


def read(monitor, seconds):
    found = Findings()
    monitor.read_into(found, seconds)
    return found


def test_domains_and_control_groups_are_summed(monitored):
    monitor = resctrl.Resctrl(monitored.root)
    first = read(monitor, "first_sample")
    assert first.values == {"occupancy_bytes": 3010}
    assert first.missing == {"memory_bandwidth_bytes_per_sec": "first_sample"}
    fill(monitored, "", 0, 1000, 150)
    fill(monitored, "batch/", 0, 10, 370)
    assert read(monitor, 2.0).values["memory_bandwidth_bytes_per_sec"] == 200.0
    monitor.close()


def test_without_resctrl_it_is_no_resctrl(empty):
    found = read(resctrl.Resctrl(empty.root), 1.0)
    assert found.missing == dict.fromkeys(resctrl.FIELDS, "no_resctrl")


def test_a_counter_the_hardware_has_not_is_unsupported(monitored):
    for domain in (0, 1):
        monitored.remove(f"sys/fs/resctrl/mon_data/mon_L3_{domain:02d}/mbm_total_bytes")
    monitored.remove("sys/fs/resctrl/batch")
    assert read(resctrl.Resctrl(monitored.root), 1.0).missing == {"memory_bandwidth_bytes_per_sec": "unsupported"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"42\n", 42),
        (b"Unavailable\n", "not_running"),
        (b"Unassigned\n", "not_running"),
        (b"Error\n", "io_error"),
        (b"", "malformed"),
        (b"-1\n", "malformed"),
    ],
)
def test_what_a_counter_says(text, expected):
    assert resctrl.parse(text, "x") == expected


def test_a_fall_is_a_reset_and_unavailable_is_unknown(monitored):
    monitor = resctrl.Resctrl(monitored.root)
    read(monitor, "first_sample")
    fill(monitored, "", 0, "Unavailable", 10)
    found = read(monitor, 1.0)
    assert found.missing == {"occupancy_bytes": "not_running", "memory_bandwidth_bytes_per_sec": "reset"}


def test_a_group_that_is_removed_makes_no_reset(monitored):
    monitor = resctrl.Resctrl(monitored.root)
    read(monitor, "first_sample")
    monitor.close()
    monitored.remove("sys/fs/resctrl/batch")
    fill(monitored, "", 0, 1000, 60)
    assert read(monitor, 1.0).values["memory_bandwidth_bytes_per_sec"] == 10.0
