import pathlib

import msgspec
import pytest

from cotenant.kernel import enforcing, executor, paths
from cotenant.kernel.outcome import Outcome
from cotenant.model.ledger import Account, Ledger
from cotenant.model.node import Usage, Use
from cotenant.model.pod import QOS_LABEL, Container, Pod
from cotenant.model.snapshot import Snapshot
from cotenant.node import accounting
from cotenant.node.accounting import FILE, NOTHING_ENFORCED, Accounting
from cotenant.units.clock import ManualClock
from cotenant.units.plan import PlanItem

POD = Pod(
    namespace="batch",
    name="sort",
    uid="u1",
    kube_qos="BestEffort",
    labels={QOS_LABEL: "BE"},
    phase="Running",
    containers=(Container(name="main", requests={"kubernetes.io/batch-cpu": "4000"}),),
)
USED = Usage(pods={"batch/sort": Use(cpu_millicores=1000)})


@pytest.fixture
def seen(tmp_path: pathlib.Path) -> Snapshot:
    root = tmp_path / "root"
    (root / "sys/fs/cgroup/cpu/kubepods/besteffort/podu1").mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    (root / "proc/stat").write_text("cpu 1 1 1 1\ncpu0 1 1 1 1\n")
    (root / "proc/meminfo").write_text("MemTotal: 1000 kB\n")
    place = paths.Root(root)
    return enforcing.Enforcer(place, executor.Executor(place)).look((POD,))


class Bench:
    def __init__(self, seen: Snapshot, directory: pathlib.Path | None) -> None:
        self.seen, self.clock = seen, ManualClock()
        self.accounting = Accounting(self.clock, directory)

    def round(self, seconds: float = 1.0, done: enforcing.Round | None = None) -> Account:
        self.clock.advance(seconds)
        self.accounting.take(self.seen, USED, NOTHING_ENFORCED, done)
        return self.accounting.ledger().accounts.get("batch", Account())


def test_rounds_add_up_by_namespace_and_a_gap_is_left_out(seen: Snapshot) -> None:
    bench = Bench(seen, None)
    assert bench.round() == Account()  # since when is not known
    assert bench.round().delivered_core_seconds == 1.0
    assert bench.round(2.0).asked_core_seconds == 12.0
    assert bench.round(60.0).asked_core_seconds == 12.0
    assert bench.round().asked_core_seconds == 16.0


def test_what_we_evict_loses_what_it_got(seen: Snapshot) -> None:
    bench = Bench(seen, None)
    for _ in range(6):
        bench.round()
    item = PlanItem(op="evict", new="batch/sort", strategy="cpu_evict", reason="r")
    refused = enforcing.Round((item,), (Outcome(item, "left_out"),), seen.priority)
    assert bench.round(done=refused).evictions == 0
    got = bench.round(done=enforcing.Round((item,), (Outcome(item, "written"),), seen.priority))
    assert (got.evictions, got.evicted_core_seconds) == (1, 7.0)


def test_books_survive_a_restart_and_counters_begin_anew(seen: Snapshot, tmp_path: pathlib.Path) -> None:
    bench = Bench(seen, tmp_path / "state")
    for _ in range(5):
        bench.round()
    bench.accounting.save()
    again = Bench(seen, tmp_path / "state")
    again.round()
    assert again.round().delivered_core_seconds == 5.0
    found = again.accounting.ledger()
    assert found.epoch == bench.accounting.ledger().epoch
    assert found.session["batch"].delivered_core_seconds == 1.0
    assert (
        "session" not in (tmp_path / "state" / FILE).read_text()
        or not msgspec.json.decode((tmp_path / "state" / FILE).read_bytes(), type=Ledger).session
    )


def test_they_are_saved_and_sent_now_and_then(seen: Snapshot, tmp_path: pathlib.Path) -> None:
    bench = Bench(seen, tmp_path)
    sent = 0
    for _ in range(60):
        bench.round()
        sent += bench.accounting.due() is not None
    assert sent == 60 / accounting.SEND_SECONDS
    assert (tmp_path / FILE).exists()


def test_books_that_cannot_be_read_or_written_are_told(seen: Snapshot, tmp_path: pathlib.Path) -> None:
    (tmp_path / FILE).write_text("{")
    bench = Bench(seen, tmp_path)
    assert "starts anew" in bench.accounting.notice
    nowhere = Bench(seen, tmp_path / FILE / "below")
    nowhere.accounting.save()
    assert "a restart loses the ledger" in nowhere.accounting.notice
