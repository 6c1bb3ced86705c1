import httpx
import msgspec
import pytest
from tests.web.conftest import TIME, FakeFeed

from cotenant.model import series
from cotenant.model.enforcement import EnforcementState
from cotenant.model.ledger import Account, Ledger
from cotenant.web import ledger

NOW = series.time_ms_of(TIME) / 1000
BATCH = Account(
    asked_core_seconds=36_000,
    delivered_core_seconds=18_000,
    suppressed_core_seconds=10_800,
    evicted_core_seconds=1_800,
    evictions=2,
    measured_seconds=7_200,
    unmeasured_seconds=1_800,
    starved_since=NOW - 240,
)
SMALL = Account(asked_core_seconds=60, delivered_core_seconds=60, measured_seconds=60)


@pytest.fixture
def kept(feed: FakeFeed) -> FakeFeed:
    state = EnforcementState(
        mode="enforce",
        policy="p",
        interface="mainline-idle",
        ledger=Ledger(since=NOW - 7200, accounts={"small": SMALL, "batch": BATCH}, session={"batch": BATCH}),
    )
    assert feed.moment is not None
    feed.moment = msgspec.structs.replace(feed.moment, enforcement=state)
    return feed


async def test_the_page_lists_who_asked_for_most_first(kept: FakeFeed, client: httpx.AsyncClient) -> None:
    text = (await client.get("/")).text
    row = (
        '<th scope="row" class="text" title="batch">batch</th><td>10.0</td><td>5.000</td><td>50 %</td>'
        "<td>3.000</td><td>0.500 (2)</td><td><b>4 min</b></td><td>20 %</td>"
    )
    assert row in text
    assert text.index('title="batch"') < text.index('title="small"')


async def test_without_enforcement_there_is_no_section(client: httpx.AsyncClient) -> None:
    assert 'id="ledger"' not in (await client.get("/")).text
    assert (await client.get("/api/v1/ledger")).json()["accounts"] == {}
    assert "cotenant_offline_asked" not in (await client.get("/metrics")).text


async def test_metrics_and_api(kept: FakeFeed, client: httpx.AsyncClient) -> None:
    text = (await client.get("/metrics")).text
    assert 'cotenant_offline_suppressed_core_seconds_total{group="batch"} 10800.0' in text
    assert 'cotenant_offline_evictions_total{group="batch"} 2.0' in text
    assert 'cotenant_offline_starvation_seconds{group="batch"} 240.0' in text
    assert 'group="small"' not in text  # counted by an earlier process: no counter of this one
    got = (await client.get("/api/v1/ledger")).json()
    assert msgspec.convert(got["accounts"]["batch"], Account) == BATCH
    assert got["session"] == {}


def test_series_are_bounded() -> None:
    many = {f"n{number}": Account(asked_core_seconds=number) for number in range(300)}
    families = list(ledger.metrics_of(many, "namespace", NOW))
    assert all(len(family.samples) <= ledger.SERIES_ACCOUNTS for family in families)
    assert families[0].samples[0].labels == {"namespace": "n299"}


def test_sentences_tell_an_owner_why_a_job_is_slow() -> None:
    assert ledger.sentences("batch", BATCH, NOW - 7200, NOW) == [
        "Since 2026-11-29 22:00 UTC batch asked for 10.0 core-hours and got 5.0 core-hours (50 %).",
        "3.0 core-hours were held back while online work needed the machine.",
        "It was evicted 2 times: 30.0 core-minutes of what it got are to be done again.",
        "2.0 core-hours it did not use, or lost to work of higher priority on the same CPUs.",
        "It starves now, for 4 min: it is held back and gets less than a fifth of what it asks for.",
        "20 % of the time could not be measured; what was lost then is in no number.",
    ]
    assert ledger.sentences("small", SMALL, NOW - 7200, NOW)[1:] == ["Nothing was held back by a limit of cotenant."]
    assert "(–)" not in ledger.sentences("new", Account(), NOW, NOW)[0]
