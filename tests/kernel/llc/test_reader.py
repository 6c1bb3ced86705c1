from cotenant.kernel.llc import probe, reader, resctrl


def read(tree, counters="no_pmu", probing="not_enabled", seconds=1.0):
    return reader.LlcReader(counters, resctrl.Resctrl(tree.root), probing).read(seconds)


def test_a_machine_with_nothing_names_each_reason(tree):
    assert read(tree).missing == {
        "llc": "no_pmu",
        "llc.occupancy_bytes": "no_resctrl",
        "llc.memory_bandwidth_bytes_per_sec": "no_resctrl",
        "llc.probe_ratio": "not_enabled",
    }


def test_resctrl_is_a_source(tree):
    tree.write("sys/fs/resctrl/info/last_cmd_status", "ok\n")
    tree.write("sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy", "4096\n")
    reading = read(tree)
    assert (reading.groups["llc"].source, reading.groups["llc"].occupancy_bytes) == ("resctrl", 4096)
    assert reading.missing["llc.miss_ratio"] == "no_pmu"
    assert reading.missing["llc.memory_bandwidth_bytes_per_sec"] == "unsupported"


def test_the_probe_is_the_last_source(tree):
    probing = probe.Probe(lambda: 50.0)
    source = reader.LlcReader("no_pmu", resctrl.Resctrl(tree.root), probing)
    readings = [source.read(1.0) for _ in range(probe.LEARN_READS)]
    assert readings[0].missing["llc.probe_ratio"] == "too_few"
    assert (readings[-1].groups["llc"].source, readings[-1].groups["llc"].probe_ratio) == ("probe", 1.0)
