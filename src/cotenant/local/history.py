"""History: a thread of its own that writes to the database, so that a slow or full disk never delays a sample.

Degraded modes, each seen in :meth:`History.state`: the disk is full or fails (points are dropped, tried again every
:data:`RETRY_SECONDS`); the database is damaged (moved aside under a name that is told, and started anew).
"""

import contextlib
import logging
import os
import pathlib
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator

from cotenant.local import database
from cotenant.model.incident import Incident
from cotenant.model.ledger import Ledger
from cotenant.units.clock import Clock
from cotenant.web.feed import HistoryState, Series, Unavailable

log = logging.getLogger(__name__)

FILE_NAME = "history.sqlite"
QUEUE_LIMIT = 120
"""Points that wait for a slow disk; older ones are dropped, and counted."""

RETRY_SECONDS = 30.0
TIDY_EVERY_SECONDS = 10.0
STOP_TIMEOUT_SECONDS = 3.0
READ_TURN_SECONDS = 1.0
SIGNIFICANT_DIGITS = 5

Entry = tuple[int, dict[str, float], list[Incident], Ledger | None]


def is_damaged(error: sqlite3.Error) -> bool:
    """Return whether an error means that the file's content is wrong, rather than that the disk refuses."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError | sqlite3.ProgrammingError | sqlite3.InterfaceError
    )


class History:
    """The history of one host in one directory. Start it, add to it from the sampling thread, read it from any."""

    def __init__(
        self, directory: pathlib.Path, clock: Clock, *, size_limit_bytes: int = database.SIZE_LIMIT_BYTES
    ) -> None:
        self.path = directory / FILE_NAME
        self._clock = clock
        self._size_limit_bytes = size_limit_bytes
        self._queue: queue.Queue[Entry | None] = queue.Queue(QUEUE_LIMIT)
        self._database: database.Database | None = None
        self._error: str | None = None
        self._notice: str | None = None
        self._dropped = 0
        self._size_bytes: int | None = None
        self._retry_at = 0.0
        self._tidy_at = 0.0
        self._thread = threading.Thread(target=self._writing, name="history", daemon=True)
        self._reading = threading.Lock()
        self._reader: database.Database | None = None
        self._reader_inode: int | None = None

    def start(self) -> None:
        """Open the database, as well as it can be, and start writing."""
        self._open()
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, within a few seconds, and close."""
        try:
            self._queue.put(None, timeout=STOP_TIMEOUT_SECONDS)
        except queue.Full:
            return  # The disk hangs: the thread is a daemon and ends with the process.
        self._thread.join(STOP_TIMEOUT_SECONDS)

    def add(
        self, time_ms: int, values: dict[str, float], incidents: list[Incident], ledger: Ledger | None = None
    ) -> None:
        """Hand over one tick; returns at once. Under a slow disk the oldest waiting tick is dropped."""
        while True:
            try:
                self._queue.put_nowait((time_ms, values, incidents, ledger))
                return
            except queue.Full:
                try:
                    self._queue.get_nowait()
                    self._dropped += 1
                except queue.Empty:
                    continue

    def state(self) -> HistoryState:
        """Return what is wrong with it, if anything, and its size."""
        return HistoryState(
            path=str(self.path),
            error=self._error,
            notice=self._notice,
            dropped=self._dropped,
            size_bytes=self._size_bytes,
            size_limit_bytes=self._size_limit_bytes,
        )

    def recall(self) -> tuple[int | None, list[Incident]]:
        """Return the time of the last point in ms and the newest incidents, for a start; (None, []) without history."""
        if self._database is None:
            return None, []
        try:
            return self._database.last_time_ms(), self._database.incidents(20)
        except sqlite3.Error as error:
            self._fail(error)
            return None, []

    def recall_ledger(self) -> Ledger | None:
        """Return the ledger as an earlier process kept it, for a start; None where there is none, or no history."""
        if self._database is None:
            return None
        try:
            return self._database.ledger()
        except sqlite3.Error as error:
            self._fail(error)
            return None

    def series(self, span_s: int) -> Series:
        """Return the last ``span_s`` seconds, by the wall clock.

        :raises Unavailable: if the database cannot be read.
        """
        tier = database.tier_of(span_s)
        now_ms = int(self._clock.wall() * 1000)
        with self._turn():
            try:
                points = self._opened_reader().points(now_ms - span_s * 1000, now_ms + 1000, tier)
            except sqlite3.Error as error:
                raise self._unreadable(error) from error
        names = sorted({name for _, values in points for name in values})
        return Series(
            step_s=tier.step_s,
            names=names,
            points=[[float(time_ms), *(_rounded(values.get(name)) for name in names)] for time_ms, values in points],
        )

    def incidents(self, limit: int) -> list[Incident]:
        """Return the newest incidents first.

        :raises Unavailable: if the database cannot be read.
        """
        with self._turn():
            try:
                return self._opened_reader().incidents(limit)
            except sqlite3.Error as error:
                raise self._unreadable(error) from error

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one thread read at a time; the others give up soon, so that a disk that hangs holds one thread only."""
        if not self._reading.acquire(timeout=READ_TURN_SECONDS):
            raise Unavailable("history: the disk does not answer")
        try:
            yield
        finally:
            self._reading.release()

    def _opened_reader(self) -> database.Database:
        """Return the read connection, opened anew when another file has taken the path."""
        try:
            inode = os.stat(self.path).st_ino
        except OSError as error:
            raise sqlite3.OperationalError(f"{error.strerror}: {self.path}") from error
        if self._reader is not None and self._reader_inode != inode:
            self._reader.close()
            self._reader = None
        if self._reader is None:
            self._reader = database.Database(self.path, read_only=True)
            self._reader_inode = inode
        return self._reader

    def _unreadable(self, error: sqlite3.Error) -> Unavailable:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        return Unavailable(f"history: {self._error or error}")

    def _writing(self) -> None:
        """Take what waits, all at once, until told to stop."""
        going = True
        while going:
            batch: list[Entry] = []
            entry = self._queue.get()
            while True:
                if entry is None:
                    going = False
                else:
                    batch.append(entry)
                try:
                    entry = self._queue.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._write(batch)
        if self._database is not None:
            self._database.close()

    def _write(self, batch: list[Entry]) -> None:
        now = self._clock.monotonic()
        if self._database is None and now >= self._retry_at:
            self._open()
        if self._database is None:
            self._dropped += len(batch)
            return
        try:
            self._database.add(
                [(time_ms, values) for time_ms, values, _, _ in batch],
                [incident for _, _, incidents, _ in batch for incident in incidents],
                next((ledger for *_, ledger in reversed(batch) if ledger is not None), None),
            )
            if now >= self._tidy_at:
                self._tidy_at = now + TIDY_EVERY_SECONDS
                self._database.tidy(batch[-1][0])
                self._size_bytes = self._database.size_bytes()
            self._error = None
        except sqlite3.Error as error:
            self._dropped += len(batch)
            self._fail(error)

    def _open(self) -> None:
        try:
            self._database = self._opened()
            self._size_bytes = self._database.size_bytes()
        except sqlite3.Error as error:
            self._fail(error)

    def _opened(self) -> database.Database:
        try:
            return database.Database(self.path, size_limit_bytes=self._size_limit_bytes)
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            self._move_aside(error)
            return database.Database(self.path, size_limit_bytes=self._size_limit_bytes)

    def _move_aside(self, error: sqlite3.Error) -> None:
        """Keep the damaged file under another name (one such file at most), so that a new one can start."""
        aside = self.path.with_name(self.path.name + ".damaged")
        for old, new in zip(database.files_of(self.path), database.files_of(aside), strict=True):
            try:
                if old.exists():
                    old.replace(new)
                else:
                    new.unlink(missing_ok=True)
            except OSError as problem:
                raise sqlite3.OperationalError(f"{problem.strerror}: {old}") from problem
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self._clock.wall()))
        self._notice = f"{when}: the history was damaged ({error}); it is kept as {aside}, and a new one was started"
        log.warning("%s", self._notice)

    def _fail(self, error: sqlite3.Error) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        # A damaged file is opened again at once, which moves it aside.
        self._retry_at = self._clock.monotonic() + (0.0 if is_damaged(error) else RETRY_SECONDS)
        text = f"not written: {error} ({self.path}); carrying on without, next try in {RETRY_SECONDS:.0f} s"
        if self._error is None:
            log.warning("history %s", text)
        self._error = text


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
