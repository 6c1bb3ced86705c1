import pathlib
from collections.abc import Collection

import msgspec
import pytest

from cotenant.local.cost import CostMeter
from cotenant.local.history import QUEUE_LIMIT, History
from cotenant.local.host import Host
from cotenant.model.evaluation import Detection, Evaluation
from cotenant.model.latency import P99, Quantile, ServiceLatency
from cotenant.model.loss import Loss
from cotenant.model.sample import Cpu, Psi, Sample
from cotenant.units.clock import ManualClock
from cotenant.web.feed import Moment, Refused, RulesState, Unavailable


class Source:
    bpf_core_ratio = 0.0005
    bpf_losses = (Loss("block", "unseen", 3),)

    def __init__(self) -> None:
        self.second = 0
        self.primed = False
        self.broken = False

    def prime(self) -> None:
        self.primed = True

    def sample(self) -> Sample:
        if self.broken:
            raise OSError("no")
        self.second += 1
        return Sample(
            node="n1", time=f"2027-01-15T08:00:{self.second:02d}Z", cpu=Cpu(online=2, used_ratio=0.5), psi=Psi()
        )


class StubJudge:
    def __init__(self) -> None:
        self.triggered = False

    def evaluate(self, sample: Sample) -> Evaluation:
        detection = Detection(triggered=self.triggered, index=0.5 if self.triggered else 0.0)
        return Evaluation(node="n1", time=sample.time, interference_level=0.1, detections={"ioCongestion": detection})

    def rules_state(self) -> RulesState:
        return RulesState()

    def refresh(self) -> None:
        return

    def roll_back(self, revision: int | None) -> RulesState:
        raise Refused("nothing to go back to")


class Services:
    """One service whose p99 a test sets; None: not known."""

    def __init__(self) -> None:
        self.p99_seconds: float | None = None

    def services(self) -> list[ServiceLatency]:
        known = Quantile(quantile=P99, seconds=self.p99_seconds)
        return [ServiceLatency(service="shop", source="log", quantiles=(known,))]

    def over(self, nodes: Collection[str]) -> list[ServiceLatency]:
        return self.services()


class Bench:
    def __init__(self, directory: pathlib.Path) -> None:
        self.source, self.judge = Source(), StubJudge()
        self.clock = ManualClock(wall=1_800_000_000.0)
        self.history = History(directory, self.clock)
        status = directory / "status"
        status.write_text("Name:\tx\nVmRSS:\t  2048 kB\n")
        self.latencies = Services()
        self.host = Host(self.source, self.judge, self.history, CostMeter(status), self.clock, latencies=self.latencies)

    def start(self) -> None:
        self.history.start()
        self.host.start()


@pytest.fixture
def bench(tmp_path: pathlib.Path) -> Bench:
    return Bench(tmp_path)


def test_one_tick_reaches_everyone(bench: Bench) -> None:
    seen: list[Moment] = []
    bench.host.listen(seen.append)
    bench.start()
    assert bench.source.primed
    assert bench.host.latest() is None
    assert bench.host.age_s() is None
    bench.host.tick()
    assert seen == [bench.host.latest()]
    assert seen[0].cost.rss_bytes == 2048 * 1024
    assert seen[0].cost.sample_usec is not None
    assert seen[0].cost.bpf_cpu_ratio == 0.0005
    assert seen[0].cost.bpf_losses == (Loss("block", "unseen", 3),)
    bench.clock.advance(3)
    assert bench.host.age_s() == 3
    bench.history.stop()
    series = bench.history.series(3600)
    assert dict(zip(series.names, series.points[0][1:], strict=True)) == {
        "cpu.online": 2, "cpu.used_ratio": 0.5, "index.ioCongestion": 0.0, "level": 0.1,
    }  # fmt: skip


def test_a_failed_sample_is_counted_and_keeps_the_last_one(bench: Bench) -> None:
    bench.start()
    bench.host.tick()
    bench.source.broken = True
    with pytest.raises(OSError, match="no"):
        bench.host.tick()
    assert bench.host.latest() is not None
    bench.source.broken = False
    bench.host.tick()
    assert bench.host.latest().cost.failed_ticks == 1  # type: ignore[union-attr]
    bench.history.stop()


def test_an_incident_left_open_by_a_kill_is_closed_at_the_last_sample(bench: Bench, tmp_path: pathlib.Path) -> None:
    bench.start()
    bench.judge.triggered = True
    for _ in range(4):
        bench.host.tick()
    bench.history.stop()  # the program dies here, the incident open
    again = Bench(tmp_path)
    again.source.second = 30
    again.start()
    again.host.tick()
    again.history.stop()
    (incident,) = again.host.incidents(10)
    assert incident.ended_by == "restart"
    assert incident.end == "2027-01-15T08:00:04Z"


def test_incidents_are_there_without_a_history(tmp_path: pathlib.Path) -> None:
    bench = Bench(tmp_path)
    bench.history.path = tmp_path / "nowhere" / "history.sqlite"
    bench.start()
    with pytest.raises(Unavailable):
        bench.host.incidents(10)
    bench.judge.triggered = True
    bench.host.tick()
    assert [incident.dominant for incident in bench.host.incidents(10)] == ["ioCongestion"]
    bench.history.stop()


def test_a_tick_waits_for_no_disk(bench: Bench) -> None:
    bench.host.start()  # and not the history: nothing takes what waits to be written
    for _ in range(QUEUE_LIMIT + 10):
        bench.source.second = 0
        bench.host.tick()
    assert bench.history.state().dropped == 10


def test_the_moment_can_be_encoded(bench: Bench) -> None:
    bench.start()
    bench.host.tick()
    assert msgspec.json.decode(msgspec.json.encode(bench.host.latest()), type=Moment) == bench.host.latest()
    bench.history.stop()


def test_latency_is_kept_beside_the_signals_and_absent_while_unknown(bench: Bench) -> None:
    bench.start()
    bench.host.tick()
    bench.latencies.p99_seconds = 0.0125
    bench.host.tick()
    bench.history.stop()
    bench.clock.advance(2)
    series = bench.history.series(3600)
    column = series.names.index("latency.shop.p99_usec") + 1
    assert [point[column] for point in series.points] == [None, 12500.0]
    moment = bench.host.latest()
    assert moment is not None
    assert moment.latencies[0].p99_seconds == 0.0125


def test_an_incident_says_how_soon_the_service_was_well_again(bench: Bench) -> None:
    bench.start()
    bench.latencies.p99_seconds = 0.010
    for _ in range(12):
        bench.host.tick()
    bench.judge.triggered, bench.latencies.p99_seconds = True, 0.200
    for _ in range(4):
        bench.host.tick()
    bench.latencies.p99_seconds = 0.010
    bench.host.tick()
    bench.judge.triggered = False
    for _ in range(4):  # it ends before the service is seen to be well
        bench.host.tick()
    bench.history.stop()
    (incident,) = bench.host.incidents(10)
    assert incident.end is not None
    (outcome,) = incident.latency
    assert (outcome.service, outcome.rose, outcome.action) == ("shop", True, None)
    assert outcome.before_seconds == 0.010
    assert outcome.peak_seconds == 0.200
    assert outcome.recovery_seconds == 4.0
    assert bench.history.incidents(1) == [incident]


def test_the_log_says_by_which_detection_the_bucket_goes(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    detection = Detection(triggered=True, index=0.8)
    found = Evaluation(
        node="n1", time="t", interference_level=0.2, bucket="severe", detections={"cpuContention": detection}
    )
    bench.host._tell(found)
    bench.host._tell(found)
    assert caplog.messages == ["interference: severe (level 0.20, CPU contention 0.80)"]
