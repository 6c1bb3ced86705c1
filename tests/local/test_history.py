import itertools
import pathlib

import pytest
from tests.waiting import await_true

from cotenant.local import database, history
from cotenant.model.incident import Incident
from cotenant.units.clock import ManualClock
from cotenant.web.feed import Unavailable

WALL_MS = 1_800_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall=WALL_MS / 1000)


def stored(kept: history.History) -> int:
    try:
        return len(kept.series(3600).points)
    except Unavailable:
        return 0


def test_it_survives_a_restart(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    first = history.History(tmp_path, clock)
    first.start()
    assert first.recall() == (None, [])
    for n in range(5):
        first.add(WALL_MS - 5000 + n * 1000, {"level": 0.123456789, "only.once": 1.0} if n == 0 else {"level": 0.2}, [])
    first.add(WALL_MS, {}, [Incident(id=7, start="s")])
    first.stop()
    second = history.History(tmp_path, clock)
    second.start()
    last_ms, incidents = second.recall()
    assert last_ms == WALL_MS
    assert [incident.id for incident in incidents] == [7]
    series = second.series(3600)
    assert series.names == ["level", "only.once"]
    assert series.points[0] == [WALL_MS - 5000, 0.12346, 1.0]
    assert series.points[1] == [WALL_MS - 4000, 0.2, None]
    assert second.incidents(10)[0].id == 7
    second.stop()


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 100, b"\0" * 8192])
def test_a_damaged_file_is_kept_aside_and_named(tmp_path: pathlib.Path, clock: ManualClock, content: bytes) -> None:
    (tmp_path / history.FILE_NAME).write_bytes(content)
    kept = history.History(tmp_path, clock)
    kept.start()
    notice = kept.state().notice
    assert notice is not None
    assert "history.sqlite.damaged" in notice
    assert (tmp_path / "history.sqlite.damaged").read_bytes() == content
    kept.add(WALL_MS, {"level": 0.5}, [])
    await_true(lambda: stored(kept) == 1, "it is stored")
    assert kept.state().error is None
    kept.stop()


def test_damage_inside_a_page_is_found_at_the_start(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    kept = history.History(tmp_path, clock)
    kept.start()
    for n in range(100):
        kept.add(WALL_MS - n * 1000, {f"signal_{m}": 1.0 for m in range(40)}, [])
    kept.stop()
    path = tmp_path / history.FILE_NAME
    raw = bytearray(path.read_bytes())
    for page in range(4, len(raw) // 4096):
        raw[page * 4096 : page * 4096 + 512] = b"\xff" * 512
    path.write_bytes(raw)
    again = history.History(tmp_path, clock)
    again.start()
    assert "damaged" in (again.state().notice or "")
    again.stop()


def test_a_full_disk_is_told_and_tried_again(
    tmp_path: pathlib.Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = history.History(tmp_path, clock, size_limit_bytes=40 * database.PAGE_BYTES)
    kept.start()
    values = {f"signal_{m}": 1.0 for m in range(100)}
    times = itertools.count(WALL_MS - 1, -1)

    def fails_to_take_more() -> bool:
        kept.add(next(times), values, [])
        return kept.state().error is not None

    await_true(fails_to_take_more, "it is full", pause_seconds=0.001)
    assert "full" in (kept.state().error or "")
    before = stored(kept)
    assert before > 0, "what was written can still be read"
    kept.add(WALL_MS, values, [])
    await_true(lambda: kept.state().dropped >= 2, "what comes while it is full is counted")
    # There is room again, and half a minute has passed.
    monkeypatch.setattr(kept, "_size_limit_bytes", database.SIZE_LIMIT_BYTES)
    clock.advance(history.RETRY_SECONDS + 1)
    kept.add(WALL_MS + 1000, values, [])
    await_true(lambda: kept.state().error is None and stored(kept) > before, "it is stored again")
    kept.stop()


def test_a_slow_disk_drops_the_oldest_and_never_waits(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    kept = history.History(tmp_path, clock)  # not started: nothing is taken from the queue
    for n in range(history.QUEUE_LIMIT + 10):
        kept.add(n, {}, [])
    assert kept.state().dropped == 10


def test_a_directory_that_cannot_be_written(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    kept = history.History(tmp_path / "not-there", clock)
    kept.start()
    assert "unable to open" in (kept.state().error or "")
    with pytest.raises(Unavailable):
        kept.series(60)
    assert kept.recall() == (None, [])
    kept.stop()
