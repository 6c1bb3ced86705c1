import pathlib
import threading
from typing import NamedTuple

import pytest
from tests.waiting import PATIENCE_SECONDS

from cotenant.kernel import paths
from cotenant.kernel.cgroup.classes import Match
from cotenant.local import enforcement
from cotenant.model.evaluation import Detection, Evaluation, Suspect, Victim
from cotenant.model.sample import Cgroup, Cpu, Memory, Offline, Sample
from cotenant.units.clock import ManualClock

BE, LS = "cotenant-be/make", "cotenant-ls/web"
FILES = {"cpu.shares": "1024", "cpu.idle": "0", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000",
         "cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0"}  # fmt: skip
MATCHES = (Match.parse("batch/a=BE"),)


class Tick(NamedTuple):
    sample: Sample
    evaluation: Evaluation


class Bench:
    def __init__(self, directory: pathlib.Path, **settings: object) -> None:
        self.cpu = directory / "sys/fs/cgroup/cpu"
        for group in ("", "cotenant-be", BE, "cotenant-ls", LS, "batch", "batch/a"):
            (self.cpu / group).mkdir(parents=True, exist_ok=True)
            for name, text in FILES.items():
                (self.cpu / group / name).write_text(f"{text}\n")
        (directory / "proc/self").mkdir(parents=True)
        (directory / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
        (directory / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
        (directory / "proc/stat").write_text("cpu 1 1 1 1\n" + "".join(f"cpu{n} 1 1 1 1\n" for n in range(8)))
        self.root = paths.Root(directory)
        self.clock = ManualClock()
        chosen = enforcement.Settings(matches=MATCHES, **settings)  # type: ignore[arg-type]
        self.loop = enforcement.Enforcement(self.root, chosen, clock=self.clock)

    def read(self, group: str, file: str) -> str:
        return (self.cpu / group / file).read_text().strip()

    def tick(self, online: float = 0.25, triggered: bool = False) -> Tick:
        cgroups = [
            Cgroup(path=BE, class_="offline", name="make", cpu_used_ratio=0.25),
            Cgroup(path=LS, class_="online", name="web", cpu_used_ratio=online),
            Cgroup(path="batch/a", class_="offline", cpu_used_ratio=0.0),
        ]
        sample = Sample(
            node="n",
            time="t",
            cpu=Cpu(online=8, used_ratio=0.25 + online),
            memory=Memory(available_ratio=0.5),
            offline=Offline(cpu_used_ratio=0.25),
            cgroups=cgroups,
        )
        victim, suspect = Victim(name="web", evidence="e"), Suspect(name="make", confidence=0.9, evidence="e")
        detection = Detection(triggered=triggered, victims=[victim], suspects=[suspect])
        return Tick(sample, Evaluation(node="n", time="t", detections={"cpuContention": detection}))

    def run(self, rounds: int = 1, **tick: object) -> None:
        for _ in range(rounds):
            self.loop.round(self.tick(**tick))  # type: ignore[arg-type]
            self.clock.advance(1)


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Bench:
    return Bench(tmp_path)


def test_commands_and_matched_groups_get_priority_and_a_quota_together(bench: Bench) -> None:
    bench.run()
    assert bench.read(BE, "cpu.idle") == bench.read("batch/a", "cpu.idle") == "1"
    assert bench.read(LS, "cpu.idle") == "0"
    # 65 % of 8 CPUs less the 2 of online work, shared by the directory of commands and the group apart.
    assert [bench.read(g, "cpu.cfs_quota_us") for g in ("cotenant-be", "batch/a")] == ["160000", "160000"]
    assert bench.read(BE, "cpu.cfs_quota_us") == bench.read(LS, "cpu.cfs_quota_us") == "-1"
    state = bench.loop.state()
    assert (state.mode, state.online_groups, state.offline_groups) == ("enforce", 1, 2)
    assert state.offline_delivered_millicores == 2000
    held = next(h for h in state.held if h.path.endswith("cotenant-be/cpu.cfs_quota_us"))
    assert (held.target, held.actual, held.strategy) == ("160000", "160000", "cpu_suppress")


def test_a_steady_state_writes_nothing(bench: Bench) -> None:
    bench.run(2)
    before = bench.loop.writer.writes_total
    for second in range(60):
        bench.run(online=0.25 + (second % 7) * 0.002)
    assert bench.loop.writer.writes_total == before


def test_a_quota_that_somebody_keeps_writing_over_moves_to_the_groups(bench: Bench) -> None:
    bench.run(2)
    for _ in range(5):
        (bench.cpu / "cotenant-be/cpu.cfs_quota_us").write_text("-1\n")
        bench.run()
    (contest,) = bench.loop.state().contests
    assert (contest.found, contest.answer) == ("-1", "each group has a quota of its own instead")
    (bench.cpu / "cotenant-be/cpu.cfs_quota_us").write_text("-1\n")
    bench.run(3)
    assert bench.read("cotenant-be", "cpu.cfs_quota_us") == "-1"
    assert bench.read(BE, "cpu.cfs_quota_us") != "-1"
    bench.clock.advance(600)
    bench.run(3)
    assert bench.read("cotenant-be", "cpu.cfs_quota_us") != "-1"


def test_a_group_keeps_the_quota_that_its_owner_gave_it(bench: Bench) -> None:
    (bench.cpu / "batch/a/cpu.cfs_quota_us").write_text("50000\n")
    bench.run(3)
    assert bench.read("batch/a", "cpu.cfs_quota_us") == "50000"


def test_a_suspect_steps_back_in_the_loop_and_gets_everything_back(bench: Bench) -> None:
    bench.run(12, triggered=True)
    assert bench.read(BE, "cpu.cfs_quota_us") == "98000"  # 2 CPUs, less 30 % twice
    state = bench.loop.state()
    assert state.isolation is not None
    assert (state.isolation.suspect, state.isolation.steps, state.isolations_total) == (BE, 2, 1)
    bench.run(40, triggered=False)
    assert bench.read(BE, "cpu.cfs_quota_us") == "-1"
    assert bench.loop.state().isolation.recovery_seconds == 12  # type: ignore[union-attr]


def test_a_new_start_goes_on_with_what_is_held_and_gives_it_back(bench: Bench) -> None:
    bench.run(12, triggered=True)
    assert bench.read(BE, "cpu.cfs_quota_us") == "98000"
    bench.loop = enforcement.Enforcement(bench.root, enforcement.Settings(matches=MATCHES), clock=bench.clock)
    bench.run(5, triggered=True)
    assert bench.read(BE, "cpu.cfs_quota_us") == "98000"
    bench.run(15)
    assert bench.read(BE, "cpu.cfs_quota_us") == "-1"


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(tmp_path: pathlib.Path) -> None:
    bench = Bench(tmp_path, dry_run=True)
    bench.run(2)
    assert bench.read(BE, "cpu.idle") == "0"
    state = bench.loop.state()
    assert state.mode == "dry-run"
    held = next(h for h in state.held if h.path.endswith(f"{BE}/cpu.idle"))
    assert (held.target, held.actual) == ("1", "0")


def test_beside_another_agent_it_only_observes(bench: Bench) -> None:
    other = bench.root.proc / "77"
    other.mkdir()
    (other / "comm").write_text("koordlet\n")
    (other / "cmdline").write_bytes(b"/koordlet\0")
    bench.run(2)
    assert bench.read(BE, "cpu.idle") == "0"
    assert (bench.loop.state().mode, bench.loop.state().conflict) == ("observe", "koordlet")


def test_restore_gives_all_back_and_nothing_is_written_again(bench: Bench) -> None:
    bench.run(2)
    assert bench.loop.restore().complete
    assert bench.read("cotenant-be", "cpu.cfs_quota_us") == "-1"
    assert bench.read(BE, "cpu.idle") == bench.read("batch/a", "cpu.idle") == "0"
    bench.run(5, triggered=True)
    assert bench.read(BE, "cpu.idle") == "0"
    assert bench.loop.state().mode == "paused"


def test_ending_leaves_every_limit_in_force(bench: Bench) -> None:
    done = threading.Event()
    round_ = bench.loop.round

    def counted(observed: enforcement.Observed) -> None:
        round_(observed)
        done.set()

    bench.loop.round = counted  # type: ignore[method-assign]
    bench.loop.start()
    bench.loop.offer(bench.tick())
    assert done.wait(PATIENCE_SECONDS)
    bench.loop.stop()
    assert bench.read("cotenant-be", "cpu.cfs_quota_us") == "160000"


def test_a_failed_round_is_counted_and_the_next_one_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()
    done = threading.Event()
    round_ = bench.loop.round

    def first_fails(observed: enforcement.Observed) -> None:
        if not failed.is_set():
            failed.set()
            raise OSError("no")
        round_(observed)
        done.set()

    monkeypatch.setattr(bench.loop, "round", first_fails)
    bench.loop.start()
    bench.loop.offer(bench.tick())
    assert failed.wait(PATIENCE_SECONDS)
    bench.loop.offer(bench.tick())
    assert done.wait(PATIENCE_SECONDS)
    bench.loop.stop()
    assert bench.loop.state().failed_rounds_total == 1


def test_the_ledger_counts_what_each_group_got_and_lost_to_our_quota(bench: Bench) -> None:
    stat = bench.cpu / "batch/a/cpu.stat"
    for second in range(11):
        stat.write_text(f"throttled_time {second * 1_500_000_000}\n")
        bench.run()
    accounts = bench.loop.state().ledger.accounts
    assert accounts.keys() == {BE, "batch/a"}
    assert accounts[BE].delivered_core_seconds == pytest.approx(20)
    assert accounts[BE].suppressed_core_seconds == 0
    assert accounts["batch/a"].suppressed_core_seconds == pytest.approx(15)
    assert accounts["batch/a"].asked_core_seconds == pytest.approx(15)
    assert accounts["batch/a"].starved_since is not None
    bench.clock.advance(100)  # nobody looked: not known, and not counted
    bench.run()
    assert bench.loop.state().ledger.accounts[BE].measured_seconds == pytest.approx(10)
