"""A feed that a test fills, and a client of the site on it."""

from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from cotenant.model.evaluation import Detection, Evaluation, SignalState, Suspect, Victim
from cotenant.model.incident import Incident
from cotenant.model.sample import Block, Cgroup, CgroupPsi, Cpu, Device, Psi, Sample
from cotenant.web.application import Site
from cotenant.web.feed import Cost, HistoryState, Moment, Refused, Restored, RulesState, Series, Unavailable
from cotenant.web.guard import AllowedHosts, Keys

TIME = "2026-11-30T00:00:10.000Z"
TOKEN = "the-token-of-this-test"


def sample() -> Sample:
    return Sample(
        node="n1",
        time=TIME,
        period_s=1.0,
        psi=Psi(io_some_ratio=0.42, memory_full_ratio=0.0),
        block=Block(
            source="bpf", completions=130, p99_usec=65000, devices={"vda": Device(kind="cloud", p99_usec=65000)}
        ),
        cpu=Cpu(source="bpf", online=2, used_ratio=0.21),
        cgroups=[
            Cgroup(
                path="system.slice/web.service", class_="online", cpu_used_ratio=0.1, psi=CgroupPsi(io_some_ratio=0.4)
            ),
            Cgroup(
                path="cotenant-be/backup", class_="offline", name="backup", cpu_used_ratio=0.05, memory_bytes=1 << 20
            ),
        ],
        missing={"llc": "no_pmu", "psi.irq_full_ratio": "unsupported"},
    )


def evaluation(*, hurt: bool) -> Evaluation:
    io = Detection(
        triggered=hurt,
        index=0.6 if hurt else 0.01,
        signals={
            "block.p99_usec": SignalState(value=65000 if hurt else 900, index=0.6 if hurt else 0.01, threshold=30000)
        },
        victims=[Victim(name="web.service", evidence="I/O stall 40 % of the time")] if hurt else [],
        suspects=[Suspect(name="backup", confidence=0.9, evidence="wrote 310 MiB/s")] if hurt else [],
    )
    return Evaluation(
        node="n1",
        time=TIME,
        interference_level=0.3 if hurt else 0.01,
        bucket="high" if hurt else "none",
        coverage=0.75,
        detections={"ioCongestion": io, "cachePollution": Detection()},
        missing={"llc.miss_ratio": "no_pmu"},
    )


def moment(*, hurt: bool = False, rules: RulesState | None = None, history_error: str | None = None) -> Moment:
    return Moment(
        sample=sample(),
        evaluation=evaluation(hurt=hurt),
        cost=Cost(cpu_ratio=0.01, rss_bytes=40 << 20, sample_usec=900, sample_p99_usec=1500),
        rules=rules or RulesState(),
        history=HistoryState(
            path="/data/history.sqlite", error=history_error, size_bytes=4096, size_limit_bytes=1 << 20
        ),
        incident=incident() if hurt else None,
    )


def incident() -> Incident:
    return Incident(id=1, start=TIME, detections=["ioCongestion"], dominant="ioCongestion", level_peak=0.3)


class FakeFeed:
    def __init__(self) -> None:
        self.moment: Moment | None = moment()
        self.age: float | None = 0.5
        self.incident_list: list[Incident] = []
        self.unavailable: str | None = None
        self.rolled_back_to: list[int | None] = []
        self.restores = 0

    def latest(self) -> Moment | None:
        return self.moment

    def age_s(self) -> float | None:
        return self.age if self.moment else None

    def history(self, span_s: int) -> Series:
        if self.unavailable:
            raise Unavailable(self.unavailable)
        return Series(step_s=1, names=["cpu.used_ratio", "level"], points=[[1000.0, 0.21, None], [2000.0, 0.2, 0.01]])

    def incidents(self, limit: int) -> list[Incident]:
        if self.unavailable:
            raise Unavailable(self.unavailable)
        return self.incident_list[:limit]

    def restore_all(self) -> Restored:
        if self.moment is None or self.moment.enforcement is None:
            raise Refused("nothing is enforced here")
        self.restores += 1
        return Restored(restored=3, left=["cpu.qos_level: stays; recreate the pod"])

    def roll_back_rules(self, revision: int | None) -> RulesState:
        if revision == 99:
            raise Refused("there is no revision 99")
        self.rolled_back_to.append(revision)
        return RulesState(source="rules.yaml", revision=revision)


@pytest.fixture
def feed() -> FakeFeed:
    return FakeFeed()


@pytest.fixture
def keys() -> Keys:
    return Keys(TOKEN, "cotenant_7070")


@pytest.fixture
def site(feed: FakeFeed, keys: Keys) -> Site:
    return Site(feed, AllowedHosts("127.0.0.1"), keys, period_s=1.0)


@pytest.fixture
async def client(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=site.application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7070") as client:
        yield client


@pytest.fixture
def hurt(feed: FakeFeed) -> FakeFeed:
    feed.moment = moment(hurt=True)
    feed.incident_list = [incident(), msgspec.structs.replace(incident(), id=0, end=TIME, ended_by="restart")]
    return feed


@pytest.fixture
def bad_rules(feed: FakeFeed) -> FakeFeed:
    state = RulesState(
        source="rules.yaml", revision=2, error="rules.yaml:7: spec.windowSecond: did you mean <windowSeconds>?"
    )
    feed.moment = moment(rules=state)
    return feed


@pytest.fixture
def full_disk(feed: FakeFeed) -> FakeFeed:
    feed.moment = moment(history_error="not written: database or disk is full")
    feed.unavailable = "history: database or disk is full"
    return feed


@pytest.fixture
def authorized() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}
