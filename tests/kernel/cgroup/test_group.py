"""A group's line of the sample: what did not change makes the same line, and says the same of what it lacks."""

from cotenant.kernel.cgroup.classes import Label
from cotenant.kernel.cgroup.counters import GroupCounters
from cotenant.kernel.cgroup.group import Group, Period, Reasons
from cotenant.units.histogram import Histogram


class Files:
    """Files that nobody reads here."""

    def read(self) -> GroupCounters | None:
        return None

    def close(self) -> None:
        pass


COUNTERS = GroupCounters(usage_usec=10, nr_periods=1, nr_throttled=0, memory_bytes=4096, read_bytes=1, write_bytes=2)
PERIOD = Period(1.0, 2, "no_bpf", "no_bpf", "no_resctrl")


def test_a_group_that_did_nothing_keeps_its_line_and_its_reasons() -> None:
    group = Group("a", Files())
    lines = []
    for _ in range(4):
        reasons: Reasons = {}
        lines.append(group.line(COUNTERS, Label(), PERIOD, 0, reasons))
        assert reasons["refault_per_sec"] == "unsupported"
        assert reasons["llc_occupancy_bytes"] == "no_resctrl"
        assert reasons["class"] == "no_class"
    assert lines[0].cpu_used_ratio is None
    assert (lines[1].cpu_used_ratio, lines[1].write_bytes_per_sec) == (0.0, 0.0)
    assert lines[2] is lines[1]
    assert lines[3] is lines[1]


def test_a_line_shows_whatever_else_changed() -> None:
    group = Group("a", Files())

    def line(counters: GroupCounters = COUNTERS, label: Label | None = None, period: Period = PERIOD) -> object:
        return group.line(counters, label or Label(), period, 0, {})

    line()
    still = line()
    assert line(label=Label("offline", "job")) == group.line(COUNTERS, Label("offline", "job"), PERIOD, 0, {})
    assert line(label=Label("offline", "job")) != still
    assert line() == still
    waited = Histogram()
    for _ in range(100):
        waited.add(700.0)
    traced = Period(1.0, 2, {"a": waited}, "no_bpf", "no_resctrl")
    assert getattr(line(period=traced), "run_queue_latency_p99_usec") is not None  # noqa: B009
    assert line(period=Period("stale", 2, "no_bpf", "no_bpf", "no_resctrl")) != still
    assert line(period=Period(1.0, "unsupported", "no_bpf", "no_bpf", "no_resctrl")) != still
    assert group.line(COUNTERS, Label(), PERIOD, 512, {}).write_bytes_per_sec == 512
    busy = GroupCounters(usage_usec=1_000_010, nr_periods=1, nr_throttled=0, memory_bytes=4096)
    assert group.line(busy, Label(), PERIOD, 0, {}).cpu_used_ratio == 0.5
