import pathlib

from cotenant.kernel.cgroup.latency import LOOK_AGAIN_SECONDS, Latencies
from cotenant.kernel.tracing import GroupTrace
from cotenant.units.histogram import Histogram


def waited(count: int) -> GroupTrace:
    latencies = Histogram()
    for _ in range(count):
        latencies.add(100.0)
    return GroupTrace(run_queue=latencies)


def test_what_runs_in_no_group_makes_nobody_look_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    root, first = tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino
    latencies = Latencies(str(tmp_path), lambda seen: seen.run_queue)
    found = latencies.by_group({root: waited(1), first: waited(2)}, ["a"], 0.0)
    assert not isinstance(found, str)
    assert {path: histogram.total for path, histogram in found.items()} == {"a": 2}
    (tmp_path / "b").mkdir()
    second = (tmp_path / "b").stat().st_ino
    later = LOOK_AGAIN_SECONDS + 1
    latencies.by_group({root: waited(1)}, ["a", "b"], later)
    found = latencies.by_group({root: waited(1), second: waited(3)}, ["a", "b"], later + 1)
    assert not isinstance(found, str)
    assert {path: histogram.total for path, histogram in found.items()} == {"b": 3}, "looked for when it came"
