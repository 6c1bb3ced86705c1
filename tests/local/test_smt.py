"""The verdict on SMT expulsion, where the work goes, and the procedure itself on two CPUs taken for siblings."""

import json
import os
import pathlib
import signal
import subprocess

import pytest
from tests import process
from tests.waiting import await_true

from cotenant.kernel import core_cookie, paths
from cotenant.local import errors, groups, smt
from cotenant.model.node import Cpu, Topology


def topology(threads: int, cores: int) -> Topology:
    """Return siblings numbered as x86 firmware does: core 0 has CPUs 0 and ``cores``."""
    return Topology(cpus=tuple(Cpu(cpu, cpu % cores, 0, 0) for cpu in range(threads * cores)))


def phases(alone: float, both: float, control: float | None = None) -> list[smt.Phase]:
    ratios = {"alone": alone, "both": both} | ({} if control is None else {"control": control})
    return [smt.Phase(name, (1,), (0,), ratio, None) for name, ratio in ratios.items()]


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((0.99, 0.01, 0.98), "expelled"),
        ((0.99, 0.01), "expelled"),
        ((0.99, 0.97, 0.98), "not expelled"),
        ((0.99, 0.30, 0.98), "cannot tell"),
        ((0.40, 0.01, 0.40), "cannot tell"),
        ((0.99, 0.01, 0.02), "cannot tell"),
    ],
)
def test_the_verdict_follows_from_the_three_runs(ratios: tuple[float, ...], verdict: str) -> None:
    assert smt.judge(phases(*ratios))[0] == verdict


def test_without_a_run_nothing_can_be_told() -> None:
    assert smt.judge([])[0] == "cannot tell"


def test_work_goes_to_whole_cores_and_the_control_to_others() -> None:
    assert smt.places(topology(2, 4), frozenset({0, 1})) == smt.Places((0, 1), (4, 5), (2, 3))
    assert smt.places(topology(2, 4), None) == smt.Places((0, 1), (4, 5), (2, 3))
    assert smt.places(topology(2, 1), None) == smt.Places((0,), (1,), ())


@pytest.mark.parametrize(("threads", "wanted"), [(1, None), (2, frozenset({0, 4}))])
def test_without_a_free_sibling_there_is_nowhere(threads: int, wanted: frozenset[int] | None) -> None:
    assert isinstance(smt.places(topology(threads, 4), wanted), str)


def test_cookies_are_not_tried_where_the_kernel_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_cookie, "is_available", lambda: False)
    with pytest.raises(errors.CannotMeasure, match="CONFIG_SCHED_CORE"):
        smt.verify(groups.Groups(paths.Root()), wanted=None, seconds=1.0, force=True, core_scheduling=True)


@pytest.fixture
def managed() -> groups.Groups:
    cpu = paths.Root().hierarchy("cpu")
    if os.geteuid() != 0 or cpu is None or not os.access(cpu.path, os.W_OK):
        pytest.skip("making cgroups needs root and a writable cpu hierarchy")
    return groups.Groups(paths.Root())


def left_behind(found: groups.Groups, pid: int) -> list[str]:
    return [name for mount in found.mounts for name in map(str, mount.path.glob(f"cotenant-*/verify-*-{pid}-*"))]


@pytest.mark.real
def test_separate_cores_are_found_not_expelled_and_nothing_stays(managed: groups.Groups) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two CPUs are needed")

    # Two CPUs that are not siblings: offline work keeps its own, unless the machine is too busy to tell. Other work
    # that takes it just while online work runs looks the same as expulsion, which would be there each time.
    def told() -> bool:
        nonlocal result
        result = smt.verify(managed, wanted=None, seconds=1.0, force=True, found=topology(2, 1))
        assert [phase.name for phase in result.phases] == ["alone", "both"]
        assert left_behind(managed, os.getpid()) == []
        worked = all(phase.offline_run_ratio for phase in result.phases) and result.phases[1].online_unit_seconds
        return result.verdict != "expelled" and bool(worked)

    result: smt.Result | None = None
    await_true(told, "both kinds of work run, and none expels the other", said=lambda: str(result))


@pytest.mark.real
def test_a_cpu_that_is_not_there_is_refused(managed: groups.Groups) -> None:
    with pytest.raises(errors.CannotMeasure, match="9"):
        smt.verify(managed, wanted=frozenset({9}), seconds=1.0, force=True, found=topology(2, 1))


@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_however_it_ends_no_load_stays(managed: groups.Groups, number: signal.Signals, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as output:
        command = [*process.COTENANT, "verify", "regression", "--force"]
        verification = subprocess.Popen(command, stdout=output, stderr=output)
    members: list[int] = []

    def loaded() -> bool:
        members.extend(_members(managed, verification.pid))
        assert verification.poll() is None, log.read_text()
        return bool(members)

    await_true(loaded, "the load of a check", said=log.read_text)
    process.end(verification, number, log)
    await_true(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in members), "the load ends")
    managed.clean()  # after kill -9 the next command removes the empty groups
    assert left_behind(managed, verification.pid) == []


def _members(found: groups.Groups, pid: int) -> list[int]:
    cpu = found.root.hierarchy("cpu")
    assert cpu is not None
    return [int(word) for file in cpu.path.glob(f"cotenant-*/verify-*-{pid}-*/cgroup.procs") for word in _words(file)]


def _words(file: pathlib.Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


@pytest.mark.real
def test_the_checklist_passes_or_says_why_not(managed: groups.Groups) -> None:
    command = [*process.COTENANT, "verify", "regression", "--force", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as verification:
        output, said = verification.communicate(timeout=600)
    rows = {row["name"]: row for row in json.loads(output)}
    assert list(rows) == ["priority", "smt", "cpuset", "cpu limit", "memory limit", "suppress", "evict"]
    for name in ("cpuset", "cpu limit", "memory limit", "suppress", "evict"):
        assert rows[name]["state"] != "fail", (rows[name], said)
    assert all(row["detail"] for row in rows.values())
    assert verification.returncode == any(row["state"] == "fail" for row in rows.values())
    assert left_behind(managed, verification.pid) == []
