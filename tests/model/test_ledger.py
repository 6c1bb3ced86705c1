import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model import ledger
from cotenant.model.ledger import ACCOUNTS_LIMIT, OTHERS, Account, Books, Entry, Ledger

WALL = 1_800_000_000.0
numbers = st.floats(0, 1e6)
accounts = st.builds(
    Account,
    asked_core_seconds=numbers,
    delivered_core_seconds=numbers,
    suppressed_core_seconds=numbers,
    evicted_core_seconds=numbers,
    evictions=st.integers(0, 9),
    starved_since=st.none() | numbers,
)


def entry(
    key: str = "batch/a", asked: float | None = 4000, delivered: float | None = 1000, suppressed: float | None = 0
) -> Entry:
    return Entry(
        key=key,
        account=key.partition("/")[0],
        asked_millicores=asked,
        delivered_millicores=delivered,
        suppressed_millicores=suppressed,
    )


class Bench:
    def __init__(self) -> None:
        self.books, self.wall = Books("e", WALL), WALL

    def take(self, *entries: Entry, seconds: float = 1.0) -> Account:
        self.wall += seconds
        self.books.take(entries, seconds, self.wall)
        return self.books.ledger().accounts["batch"]


def test_core_seconds_add_up_over_pods_and_rounds() -> None:
    bench = Bench()
    bench.take(entry(), entry("batch/b", 2000, 500, 1500))
    got = bench.take(entry(), entry("batch/b", 2000, 500, 1500), seconds=3.0)
    assert (got.asked_core_seconds, got.delivered_core_seconds, got.suppressed_core_seconds) == (24, 6, 6)
    assert got.measured_seconds == 8
    assert got.unmeasured_seconds == 0


def test_what_is_not_known_is_time_that_was_not_measured() -> None:
    bench = Bench()
    got = bench.take(entry(delivered=None))
    assert got == Account(unmeasured_seconds=1.0)
    got = bench.take(entry(suppressed=None))
    assert got == Account(delivered_core_seconds=1.0, unmeasured_seconds=2.0)


def test_starvation_begins_below_a_fifth_and_ends_above_three_tenths_without_flapping() -> None:
    bench = Bench()
    assert bench.take(entry(delivered=700, suppressed=3300)).starved_since == WALL
    for delivered in (900, 700, 1100, 850):  # around the line at which it began
        assert bench.take(entry(delivered=delivered, suppressed=3000)).starved_since == WALL
    assert bench.take(entry(delivered=1200, suppressed=2800)).starved_since is None
    assert bench.take(entry(delivered=900, suppressed=2800)).starved_since is None  # not yet again
    since = bench.take(entry(delivered=100, suppressed=2800)).starved_since
    assert since == bench.wall - 1


def test_idle_work_does_not_starve_and_the_oldest_counts() -> None:
    bench = Bench()
    assert bench.take(entry(delivered=0, suppressed=0)).starved_since is None
    bench.take(entry("batch/b", delivered=0, suppressed=4000))
    got = bench.take(entry("batch/b", delivered=0, suppressed=4000), entry("batch/c", delivered=0, suppressed=4000))
    assert got.starved_since == WALL + 1
    assert bench.take(entry("batch/c", delivered=0, suppressed=4000)).starved_since == WALL + 2


def test_an_eviction_loses_what_that_pod_got() -> None:
    bench = Bench()
    bench.take(entry(), entry("batch/b", delivered=500), seconds=10.0)
    bench.books.evicted("batch/b")
    bench.books.evicted("batch/b")  # told twice, gone once
    bench.books.evicted("other/x")
    got = bench.take(entry())
    assert (got.evicted_core_seconds, got.evictions) == (5.0, 1)
    assert bench.books.ledger().accounts.keys() == {"batch"}


def test_a_pod_that_comes_again_begins_anew() -> None:
    bench = Bench()
    bench.take(entry(), seconds=10.0)
    bench.take(entry("batch/b"))
    bench.take(entry())
    bench.books.evicted("batch/a")
    assert bench.books.ledger().accounts["batch"].evicted_core_seconds == 1.0


def test_a_restart_goes_on_with_what_was_kept_and_counters_begin_anew() -> None:
    bench = Bench()
    bench.take(entry(delivered=0, suppressed=4000), seconds=100.0)
    kept = msgspec.json.decode(msgspec.json.encode(bench.books.ledger()), type=Ledger)
    again = Books("other", WALL + 500)
    again.adopt(kept)
    again.take([entry(delivered=0, suppressed=4000)], 1.0, WALL + 501)
    got = again.ledger()
    assert (got.epoch, got.since) == ("e", WALL)
    assert got.accounts["batch"].suppressed_core_seconds == 404
    assert got.session["batch"].suppressed_core_seconds == 4
    assert got.accounts["batch"].starved_since == WALL + 500  # what happened between is not known


@settings(max_examples=50)
@given(accounts, accounts)
def test_less_and_at_least(one: Account, other: Account) -> None:
    assert one.less(Account()) == one
    assert one.plus(other).less(other).asked_core_seconds == pytest.approx(one.asked_core_seconds, abs=1e-6)
    assert one.less(one.plus(other)).asked_core_seconds == 0
    top = one.at_least(other)
    assert top.evictions == max(one.evictions, other.evictions)
    assert isinstance(top.evictions, int)
    assert isinstance(one.less(other).evictions, int)


def test_accounts_are_bounded_and_nothing_is_lost() -> None:
    books = Books("e", WALL)
    for number in range(ACCOUNTS_LIMIT + 50):
        books.take([entry(f"n{number}/a")], 1.0, WALL + number)
    found = books.ledger().accounts
    assert len(found) == ACCOUNTS_LIMIT
    assert "n0" not in found
    assert f"n{ACCOUNTS_LIMIT + 49}" in found
    assert found[OTHERS].delivered_core_seconds == 51
    assert sum(account.delivered_core_seconds for account in found.values()) == ACCOUNTS_LIMIT + 50


@settings(max_examples=50)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), accounts), max_size=5))
def test_totals_are_sums_in_any_order(parts: list[dict[str, Account]]) -> None:
    forward, backward = ledger.total(parts), ledger.total(reversed(parts))
    assert forward.keys() == backward.keys()
    for name, account in forward.items():
        assert account.asked_core_seconds == pytest.approx(backward[name].asked_core_seconds)
        assert account.asked_core_seconds == pytest.approx(sum(p[name].asked_core_seconds for p in parts if name in p))
        since = [p[name].starved_since for p in parts if name in p and p[name].starved_since is not None]
        assert account.starved_since == min(since, default=None)  # type: ignore[type-var]
