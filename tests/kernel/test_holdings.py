import pathlib

from cotenant.kernel import executor, holdings, paths
from cotenant.units.plan import PlanItem


def item(path: str, new: str, strategy: str) -> PlanItem:
    return PlanItem(op="write", path=path, new=new, strategy=strategy, reason="because")


def test_what_we_wrote_is_told_beside_what_is_there(tmp_path: pathlib.Path) -> None:
    group = tmp_path / "sys/fs/cgroup/cpu/be"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    for name, text in (("cpu.cfs_quota_us", "-1"), ("cpu.shares", "1024"), ("cpu.idle", "0")):
        (group / name).write_text(f"{text}\n")
    root = paths.Root(tmp_path)
    assert holdings.read(root) == []
    where = "sys/fs/cgroup/cpu/be"
    executor.Executor(root).apply(
        [
            item(f"{where}/cpu.cfs_quota_us", "50000", "cpu_suppress"),
            item(f"{where}/cpu.shares", "2", "run"),
            item(f"{where}/cpu.idle", "1", "group_identity"),
        ]
    )
    (group / "cpu.cfs_quota_us").write_text("70000\n")
    (group / "cpu.idle").unlink()
    (held,) = holdings.read(root, frozenset({"run"}))
    assert (held.target, held.actual, held.original) == ("50000", "70000", "-1")
    assert (held.strategy, held.reason) == ("cpu_suppress", "because")
