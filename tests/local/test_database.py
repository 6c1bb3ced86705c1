import pathlib
import sqlite3

import pytest

from cotenant.local import database
from cotenant.model.incident import Incident
from cotenant.model.ledger import Account, Ledger

START_MS = 1_800_000_000_000


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "history.sqlite"


def test_tiers_cover_a_day() -> None:
    assert database.tier_of(60) == database.TIERS[0]
    assert database.tier_of(3600).step_s == 1
    assert database.tier_of(3601).step_s == 10
    assert database.tier_of(21600).step_s == 10
    assert database.tier_of(86400).step_s == 60
    assert all(tier.step_s * tier.rows == span for tier, span in zip(database.TIERS, (3600, 21600, 86400), strict=True))


def test_coarse_points_are_means_of_what_is_known(path: pathlib.Path) -> None:
    db = database.Database(path)
    points = [(START_MS + n * 1000, {"a": float(n)} if n % 2 else {"a": float(n), "b": 1.0}) for n in range(20)]
    db.add(points, [])
    db.tidy(START_MS + 20_000)
    coarse = db.points(0, START_MS + 60_000, database.TIERS[1])
    assert coarse == [(START_MS + 10_000, {"a": 4.5, "b": 1.0}), (START_MS + 20_000, {"a": 14.5, "b": 1.0})]
    db.tidy(START_MS + 20_000)
    assert len(db.points(0, START_MS + 60_000, database.TIERS[1])) == 2, "a step is summarized once"


def test_a_killed_step_is_summarized_at_the_next_start(path: pathlib.Path) -> None:
    db = database.Database(path)
    db.add([(START_MS + n * 1000, {"a": 1.0}) for n in range(10)], [])
    # No close, no tidy: as after kill -9.
    again = database.Database(path)
    again.tidy(START_MS + 12_000)
    assert [time_ms for time_ms, _ in again.points(0, START_MS + 60_000, database.TIERS[1])] == [START_MS + 10_000]


def test_the_oldest_are_forgotten_and_the_file_stays_bounded(path: pathlib.Path) -> None:
    db = database.Database(path)
    values = {f"group.signal_number_{n}_usec": n / 7 for n in range(50)}
    limit = database.TIERS[0].rows
    for block in range(6):
        base = START_MS + block * 1_000_000
        db.add([(base + n * 1000, values) for n in range(1000)], [])
        db.tidy(base + 1_000_000)
    assert len(db.points(0, START_MS + 10**8, database.TIERS[0])) == limit
    full = db.size_bytes()
    for block in range(6, 12):
        base = START_MS + block * 1_000_000
        db.add([(base + n * 1000, values) for n in range(1000)], [])
        db.tidy(base + 1_000_000)
    assert db.size_bytes() < full * 1.35
    assert db.size_bytes() < database.SIZE_LIMIT_BYTES


def test_incidents_are_replaced_and_bounded(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "INCIDENTS_KEPT", 3)
    db = database.Database(path)
    db.add([], [Incident(id=START_MS + n, start=str(n)) for n in range(5)])
    db.add([], [Incident(id=START_MS + 4, start="4", end="9")])
    db.tidy(START_MS)
    kept = db.incidents(10)
    assert [incident.start for incident in kept] == ["4", "3", "2"]
    assert kept[0].end == "9"


def test_a_full_database_refuses_and_keeps_what_it_has(path: pathlib.Path) -> None:
    db = database.Database(path, size_limit_bytes=64 * database.PAGE_BYTES)
    kept = 0
    values = {f"signal_{m}": 1.0 for m in range(100)}
    while kept < 1000:
        try:
            db.add([(START_MS + kept, values)], [])
        except sqlite3.OperationalError as error:
            assert "full" in str(error)  # noqa: PT017 - which of the writes is refused is not known beforehand
            break
        kept += 1
    else:
        pytest.fail("a database of 256 KiB took a megabyte")
    assert kept > 10
    assert len(db.points(0, START_MS + 10_000, database.TIERS[0])) == kept


def test_a_clock_that_jumps_loses_nothing(path: pathlib.Path) -> None:
    db = database.Database(path)
    db.add([(START_MS + n * 1000, {"a": 1.0}) for n in range(5)], [])
    db.add([(START_MS + 10**10, {"a": 2.0})], [])  # four months ahead, and back
    db.tidy(START_MS + 10**10)
    db.add([(START_MS + 5000 + n * 1000, {"a": 3.0}) for n in range(60)], [])
    db.tidy(START_MS + 65_000)
    fine = db.points(START_MS - 1, START_MS + 65_000, database.TIERS[0])
    assert len(fine) == 65
    assert [t for t, _ in fine] == sorted(t for t, _ in fine)
    assert db.points(START_MS, START_MS + 65_000, database.TIERS[1])[-1][1] == {"a": 3.0}


@pytest.mark.parametrize("content", [b"\xc1\xff", b"", b"{}", b'{"id": "\xff"}', "text", 7, None])
def test_a_row_that_does_not_hold_what_was_written_is_left_out(path: pathlib.Path, content: object) -> None:
    db = database.Database(path)
    db.add(
        [(START_MS + n * 1000, {"a": 1.0}) for n in range(12)],
        [Incident(id=n, start="2027-01-15T08:00:00Z", detections=[], level_peak=None) for n in (1, 2)],
    )
    with sqlite3.connect(path) as other:
        other.execute("UPDATE point_1s SET data = ? WHERE id = 3", (content,))
        other.execute("UPDATE incident SET data = ? WHERE id = 2", (content,))
    other.close()
    again = database.Database(path)
    again.tidy(START_MS + 12_000)
    assert len(again.points(0, START_MS + 60_000, database.TIERS[0])) == 11
    assert again.points(0, START_MS + 60_000, database.TIERS[1]) == [(START_MS + 10_000, {"a": 1.0})]
    assert [incident.id for incident in again.incidents(10)] == [1]


def test_the_ledger_survives_and_the_newest_counts(path: pathlib.Path) -> None:
    db = database.Database(path)
    assert db.ledger() is None
    for seconds in (1.0, 2.0):
        db.add([], [], Ledger(epoch="e", accounts={"batch": Account(asked_core_seconds=seconds)}))
    db.add([], [])
    again = database.Database(path)
    kept = again.ledger()
    assert kept is not None
    assert kept.accounts["batch"].asked_core_seconds == 2.0
