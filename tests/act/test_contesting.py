from cotenant.act.contesting import RETRY_SECONDS, Contesting
from cotenant.model.policy import NodeSlo, ThresholdStrategy

ON = NodeSlo(threshold=ThresholdStrategy(enable=True, cpu_suppress_policy="cfsQuota"))
DIRECTORY = "sys/fs/cgroup/cpu/cotenant-be"


def test_from_the_directory_to_the_groups_to_cpu_sets_and_back_after_a_while() -> None:
    where = Contesting()
    assert "each group" in where.take(f"{DIRECTORY}/cpu.cfs_quota_us", (DIRECTORY,), 100.0)
    assert where.by_group(101.0)
    assert where.policy(ON, 101.0) == ON
    assert "CPU sets" in where.take(f"{DIRECTORY}/make/cpu.max", (DIRECTORY,), 100.0)
    assert where.policy(ON, 101.0).threshold.cpu_suppress_policy == "cpuset"
    assert where.policy(NodeSlo(), 101.0) == NodeSlo()
    assert where.policy(ON, 100.0 + RETRY_SECONDS) == ON
    assert not where.by_group(100.0 + RETRY_SECONDS)


def test_other_files_are_written_again() -> None:
    where = Contesting()
    assert where.take(f"{DIRECTORY}/cpu.idle", (DIRECTORY,), 100.0) == "written again each time"
    assert not where.by_group(100.0)
    assert where.policy(ON, 100.0) == ON
