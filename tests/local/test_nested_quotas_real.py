"""Suppression by quota on this machine's own v1 files, where a group inside has a larger quota of its own."""

import errno
import os
import pathlib
from collections.abc import Iterator

import msgspec
import pytest

from cotenant.act import planning
from cotenant.kernel import enforcing, executor, paths, undo
from cotenant.kernel.snapshot import Units
from cotenant.local import managed
from cotenant.model.node import Usage, Use
from cotenant.model.policy import NodeSlo, ThresholdStrategy
from cotenant.model.sample import Cgroup

pytestmark = pytest.mark.real

QUOTA = "cpu.cfs_quota_us"
DIRECTORY = f"cotenant-test-{os.getpid()}"
COMMAND = f"{DIRECTORY}/command"
INNER = (f"{COMMAND}/inner", f"{COMMAND}/inner/most")
SLO = NodeSlo(
    threshold=ThresholdStrategy(enable=True, cpu_suppress_threshold_percent=100, cpu_suppress_policy="cfsQuota")
)


class Node:
    """A directory of offline work on this machine, with groups inside, and a loop's rounds."""

    def __init__(self, top: pathlib.Path, run_dir: pathlib.Path) -> None:
        self.top = top
        self.root = paths.Root("/")
        self.root.run_dir = run_dir
        self.writer = executor.Executor(self.root)
        self.enforcer = enforcing.Enforcer(self.root, self.writer, beside_others=True)
        found = managed.units([Cgroup(path=COMMAND)], (), {COMMAND: "BE"}).groups
        self.units = Units(tuple(msgspec.structs.replace(group, qos="BestEffort") for group in found), DIRECTORY)

    @property
    def all_cpus_usec(self) -> int:
        return len(self.enforcer.topology.cpus) * 100_000

    def quotas(self, *groups: str) -> list[int]:
        return [int((self.top / group / QUOTA).read_text()) for group in groups]

    def round(self, slo: NodeSlo, system_millicores: float = 0) -> set[str]:
        """Do one round; return what became of its items."""
        used = Usage(node=Use(cpu_millicores=system_millicores), system=Use(cpu_millicores=system_millicores))
        seen = managed.with_own_limits(self.enforcer.look((), units=self.units, usage=used))
        plan = planning.plan(seen, slo, ("cpu_suppress",))
        return {outcome.state for outcome in self.enforcer.carry_out(seen, lambda _: plan.items).outcomes}


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Iterator[Node]:
    mount = paths.Root("/").hierarchy("cpu")
    if os.geteuid() != 0 or mount is None or mount.version != 1:
        pytest.skip("needs root and the v1 controller cpu")
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    made = (DIRECTORY, COMMAND, *INNER)
    try:
        for group in made:
            (mount.path / group).mkdir()
        yield Node(mount.path, tmp_path / "run")
    finally:
        for group in reversed(made):
            if (mount.path / group).exists():
                (mount.path / group).rmdir()


def test_it_shrinks_grows_and_gives_back(node: Node) -> None:
    most = node.all_cpus_usec
    own = most - 10_000, most - 50_000
    for group, usec in zip(INNER, own, strict=True):
        (node.top / group / QUOTA).write_text(str(usec))
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        (node.top / DIRECTORY / QUOTA).write_text(str(most // 2))
    assert node.round(SLO, most) == {"written"}
    (held,) = node.quotas(DIRECTORY)
    assert 0 < held <= most // 2
    assert node.quotas(*INNER) == [-1, -1]
    for _ in range(100):  # a tenth of the node a round
        assert node.round(SLO) <= {"written"}
        (now,) = node.quotas(DIRECTORY)
        assert node.quotas(*INNER) == [usec if usec <= now else -1 for usec in own]
        if now == most:
            break
    assert node.quotas(*INNER) == list(own)
    node.round(SLO, most)
    assert undo.restore(node.writer).complete
    assert node.quotas(DIRECTORY, COMMAND, *INNER) == [-1, -1, *own]


def test_a_commands_own_limit_gives_way_and_is_given_back_when_suppression_is_off(node: Node) -> None:
    own = node.all_cpus_usec - 10_000
    (node.top / COMMAND / QUOTA).write_text(str(own))
    assert node.round(SLO, 1e9) == {"written"}
    assert node.quotas(COMMAND) == [-1]
    assert node.round(NodeSlo()) == {"written"}
    assert node.quotas(DIRECTORY, COMMAND) == [-1, own]
