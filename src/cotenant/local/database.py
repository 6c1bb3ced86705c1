"""The history file: SQLite in WAL mode, three tiers of points and the incidents, bounded in size.

Tiers are bounded by number of rows, not by time, so that a wall clock that jumps throws nothing away. The coarser tiers
are made from the 1 s tier when their step is over, and again at the next start for what a kill left undone.
"""

import contextlib
import dataclasses
import pathlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from cotenant.model.incident import Incident
from cotenant.model.ledger import Ledger
from cotenant.units.malformed import MALFORMED

PAGE_BYTES = 4096
SIZE_LIMIT_BYTES = 32 << 20
"""The file never grows past this (SQLite's own limit on pages); a full one holds about a third of it."""

WAL_LIMIT_BYTES = 4 << 20
INCIDENTS_KEPT = 1000

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Tier:
    """Points of one step, and how many are kept."""

    step_s: int
    rows: int


TIERS = (Tier(1, 3600), Tier(10, 2160), Tier(60, 1440))
"""1 s for an hour, 10 s for six, 1 min for a day."""

_decode = msgspec.msgpack.Decoder(dict[str, float]).decode
_encode = msgspec.msgpack.Encoder().encode
_decode_incident = msgspec.json.Decoder(Incident).decode
_encode_incident = msgspec.json.Encoder().encode
_decode_ledger = msgspec.json.Decoder(Ledger).decode
_encode_ledger = msgspec.json.Encoder().encode


def tier_of(span_s: int) -> Tier:
    """Return the finest tier that covers a span, or the coarsest one."""
    return next((tier for tier in TIERS if tier.step_s * tier.rows >= span_s), TIERS[-1])


Content = TypeVar("Content")


def _decoded(decode: Callable[[bytes], Content], data: object) -> Content | None:
    """Return a row's content; None where it is not what was written, which SQLite's own check does not see."""
    try:
        return decode(data) if isinstance(data, bytes) else None
    except MALFORMED:
        return None


def _points(rows: Iterable[tuple[int, object]]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield those of some rows whose content can be read."""
    for time_ms, data in rows:
        values = _decoded(_decode, data)
        if values is not None:
            yield time_ms, values


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the names of the database and of the two files that SQLite keeps beside it."""
    return [path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")]


class Database:
    """One connection. Used by one thread at a time; every method may raise :class:`sqlite3.Error`."""

    def __init__(
        self, path: pathlib.Path, *, read_only: bool = False, size_limit_bytes: int = SIZE_LIMIT_BYTES
    ) -> None:
        self.path = path
        if read_only:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2, check_same_thread=False
            )
        else:
            self._connection = sqlite3.connect(path, timeout=2, check_same_thread=False, isolation_level=None)
            try:
                self._prepare(size_limit_bytes)
            except sqlite3.Error:
                self._connection.close()
                raise

    def _prepare(self, size_limit_bytes: int) -> None:
        run = self._connection.execute
        run(f"PRAGMA page_size = {PAGE_BYTES}")
        run("PRAGMA auto_vacuum = INCREMENTAL")
        run("PRAGMA journal_mode = WAL")
        # A kill loses nothing; a power cut may lose what came after the last checkpoint, never the file.
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        run(f"PRAGMA max_page_count = {size_limit_bytes // PAGE_BYTES}")
        check = run("PRAGMA quick_check(1)").fetchone()
        if check != ("ok",):
            raise sqlite3.DatabaseError(f"quick_check: {check[0] if check else 'no answer'}")
        if run("PRAGMA user_version").fetchone()[0] not in (0, SCHEMA_VERSION):
            raise sqlite3.DatabaseError("written by another version of cotenant")
        with self._transaction():
            for tier in TIERS:
                run(f"CREATE TABLE IF NOT EXISTS {_table(tier)} (id INTEGER PRIMARY KEY, time_ms INTEGER, data BLOB)")
                run(f"CREATE INDEX IF NOT EXISTS {_table(tier)}_time ON {_table(tier)} (time_ms)")
            run("CREATE TABLE IF NOT EXISTS incident (id INTEGER PRIMARY KEY, data BLOB)")
            run("CREATE TABLE IF NOT EXISTS ledger (id INTEGER PRIMARY KEY CHECK (id = 1), data BLOB)")
            run(f"PRAGMA user_version = {SCHEMA_VERSION}")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # A full disk may have rolled it back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection; nothing is lost without it."""
        self._connection.close()

    def add(
        self, points: list[tuple[int, dict[str, float]]], incidents: list[Incident], ledger: Ledger | None = None
    ) -> None:
        """Keep some 1 s points (time in ms), the new state of some incidents and of the ledger, all or nothing."""
        with self._transaction():
            self._connection.executemany(
                f"INSERT INTO {_table(TIERS[0])} (time_ms, data) VALUES (?, ?)",
                [(time_ms, _encode(values)) for time_ms, values in points],
            )
            self._connection.executemany(
                "INSERT OR REPLACE INTO incident (id, data) VALUES (?, ?)",
                [(incident.id, _encode_incident(incident)) for incident in incidents],
            )
            if ledger is not None:
                row = (1, _encode_ledger(ledger))
                self._connection.execute("INSERT OR REPLACE INTO ledger (id, data) VALUES (?, ?)", row)

    def tidy(self, now_ms: int) -> None:
        """Make the coarser points that are due, forget the oldest, and give pages back to the file system."""
        run = self._connection.execute
        with self._transaction():
            for tier in TIERS[1:]:
                self._summarize(tier, now_ms)
            for tier in TIERS:
                table = _table(tier)
                run(f"DELETE FROM {table} WHERE id <= (SELECT max(id) FROM {table}) - ?", (tier.rows,))
            run(
                "DELETE FROM incident WHERE id NOT IN (SELECT id FROM incident ORDER BY id DESC LIMIT ?)",
                (INCIDENTS_KEPT,),
            )
        run("PRAGMA incremental_vacuum(64)").fetchall()

    def _summarize(self, tier: Tier, now_ms: int) -> None:
        """Add the means of every step that is over and has fine points newer than the tier's last one."""
        step_ms = tier.step_s * 1000
        last = self._connection.execute(
            f"SELECT time_ms FROM {_table(tier)} WHERE time_ms <= ? ORDER BY time_ms DESC LIMIT 1", (now_ms,)
        ).fetchone()
        rows = self._connection.execute(
            f"SELECT time_ms, data FROM {_table(TIERS[0])} WHERE time_ms >= ? AND time_ms < ? ORDER BY time_ms",
            (last[0] if last else 0, now_ms - now_ms % step_ms),
        )
        steps: dict[int, list[dict[str, float]]] = {}
        for time_ms, values in _points(rows):
            steps.setdefault(time_ms - time_ms % step_ms + step_ms, []).append(values)
        self._connection.executemany(
            f"INSERT INTO {_table(tier)} (time_ms, data) VALUES (?, ?)",
            [(end_ms, _encode(_mean(points))) for end_ms, points in steps.items()],
        )

    def points(self, since_ms: int, until_ms: int, tier: Tier) -> list[tuple[int, dict[str, float]]]:
        """Return the points of one tier in (since, until], oldest first."""
        rows = self._connection.execute(
            f"SELECT time_ms, data FROM {_table(tier)} WHERE time_ms > ? AND time_ms <= ? ORDER BY time_ms LIMIT ?",
            (since_ms, until_ms, tier.rows),
        )
        return list(_points(rows))

    def last_time_ms(self) -> int | None:
        """Return the time of the point that was added last, or None in an empty file."""
        row = self._connection.execute(f"SELECT time_ms FROM {_table(TIERS[0])} ORDER BY id DESC LIMIT 1").fetchone()
        return None if row is None else int(row[0])

    def incidents(self, limit: int) -> list[Incident]:
        """Return the newest incidents first."""
        rows = self._connection.execute("SELECT data FROM incident ORDER BY id DESC LIMIT ?", (limit,))
        found = [_decoded(_decode_incident, data) for (data,) in rows]
        return [incident for incident in found if incident is not None]

    def ledger(self) -> Ledger | None:
        """Return the ledger as it was last kept, or None where there is none."""
        row = self._connection.execute("SELECT data FROM ledger").fetchone()
        return None if row is None else _decoded(_decode_ledger, row[0])

    def size_bytes(self) -> int:
        """Return the size of the file, without its WAL."""
        return int(self._connection.execute("PRAGMA page_count").fetchone()[0]) * PAGE_BYTES


def _table(tier: Tier) -> str:
    return f"point_{tier.step_s}s"


def _mean(points: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each name over the points that know it."""
    sums: dict[str, tuple[float, int]] = {}
    for values in points:
        for name, value in values.items():
            total, count = sums.get(name, (0.0, 0))
            sums[name] = (total + value, count + 1)
    return {name: total / count for name, (total, count) in sums.items()}
