"""The node's ledger of offline work: counted each round, kept through restarts, sent to the analyzer."""

import logging
import os
import pathlib
import threading
import uuid

import msgspec

from cotenant.act import ledger, withheld
from cotenant.kernel import enforcing
from cotenant.model.ledger import Books, Ledger
from cotenant.model.node import Usage
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import Snapshot
from cotenant.units.clock import Clock
from cotenant.units.malformed import MALFORMED

_log = logging.getLogger(__name__)

FILE = "ledger.json"
ROUND_LIMIT_SECONDS = 10.0
"""A round that took longer is a gap: what happened in it is not known."""
SAVE_SECONDS = 30.0
SEND_SECONDS = 10.0
NOTHING_ENFORCED = NodeSlo()


class Accounting:
    """Counts rounds into the books. ``directory`` is where they are kept; None: nowhere."""

    def __init__(self, clock: Clock, directory: pathlib.Path | None = None) -> None:
        self._clock = clock
        self._path = None if directory is None else directory / FILE
        self._books = Books(uuid.uuid4().hex, clock.wall())
        self._withheld = withheld.Withheld()
        self._taken_s: float | None = None
        self._saved_s = self._sent_s = clock.monotonic()
        self._lock = threading.Lock()
        self.notice = ""
        """Why the books are not kept, for a person."""
        self._load()

    def take(self, seen: Snapshot, used: Usage | None, slo: NodeSlo, done: enforcing.Round | None) -> None:
        """Count one round: the node as it was seen, its newest usage, the policy in force and what was written."""
        now = self._clock.monotonic()
        seconds = 0.0 if self._taken_s is None else now - self._taken_s
        self._taken_s = now
        seen = msgspec.structs.replace(seen, usage=used)
        quotas = self._withheld.of(seen, now)
        with self._lock:
            if 0 < seconds <= ROUND_LIMIT_SECONDS:
                self._books.take(ledger.entries(seen, slo, quotas), seconds, self._clock.wall())
            for outcome in done.outcomes if done is not None else ():
                if outcome.item.op == "evict" and outcome.state == "written":
                    self._books.evicted(outcome.item.new or "")
        if now - self._saved_s >= SAVE_SECONDS:
            self._saved_s = now
            self.save()

    def ledger(self) -> Ledger:
        """Return the ledger as it is now."""
        with self._lock:
            return self._books.ledger()

    def due(self) -> bytes | None:
        """Return the ledger in JSON when it is time to send it, else None."""
        now = self._clock.monotonic()
        if now - self._sent_s < SEND_SECONDS:
            return None
        self._sent_s = now
        return self._encoded()

    def _encoded(self) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self.ledger(), session={}))

    def save(self) -> None:
        """Write the books to their file; a full disk is told and tried again later."""
        if self._path is None:
            return
        beside = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(self._encoded())
            os.replace(beside, self._path)
            self.notice = ""
        except OSError as error:
            if not self.notice:
                _log.warning("ledger %s: %s; counted, but not kept", self._path, error.strerror)
            self.notice = f"{self._path}: {error.strerror}; a restart loses the ledger"

    def _load(self) -> None:
        if self._path is None:
            return
        try:
            self._books.adopt(msgspec.json.decode(self._path.read_bytes(), type=Ledger))
        except FileNotFoundError:
            return
        except (OSError, *MALFORMED) as error:
            self.notice = f"{self._path}: {error}; the ledger starts anew"
            _log.warning("ledger %s", self.notice)
