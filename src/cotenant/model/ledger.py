"""What offline work asked for, got and lost, in core-seconds: of each namespace, or of each group on one host.

An :class:`Account` only grows, so that accounts of several nodes add up and a difference of two is what happened
between. What could not be measured is counted as time that was not measured, never as nothing lost.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

STARVED_SHARE, FED_SHARE = 0.2, 0.3
"""Work that is held back and gets less than the one share of what it asks for starves, until it gets the other."""
ACCOUNTS_LIMIT = 200
OTHERS = "(others)"
"""Where the accounts that were active longest ago go when there are too many."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace or group. asked − delivered − suppressed is what it did not use, or lost to others by priority."""

    asked_core_seconds: float = 0.0
    delivered_core_seconds: float = 0.0
    suppressed_core_seconds: float = 0.0
    """Not got because a limit of ours was in force."""
    evicted_core_seconds: float = 0.0
    """Got by work that we then evicted: to be done again, unless it kept its state. Part of delivered."""
    evictions: int = 0
    measured_seconds: float = 0.0
    unmeasured_seconds: float = 0.0
    """Time in which what it got, or lost, was not known; the other numbers know nothing of it."""
    starved_since: float | None = None
    """Seconds since the epoch: how long the work of it that starves longest has been starving. None: none does."""

    def plus(self, other: "Account") -> "Account":
        """Return both together."""
        since = [one for one in (self.starved_since, other.starved_since) if one is not None]
        return _each(operator.add, self, other, min(since, default=None))

    def less(self, other: "Account") -> "Account":
        """Return what was counted beyond another account, an earlier state of this one."""
        return _each(lambda mine, theirs: max(mine - theirs, type(mine)(0)), self, other, self.starved_since)

    def at_least(self, other: "Account") -> "Account":
        """Return the larger of each count: what was counted once does not become less."""
        return _each(max, self, other, self.starved_since)


def _each(work: Callable[[Any, Any], Any], one: Account, two: Account, starved_since: float | None) -> Account:
    counts = {name: work(getattr(one, name), getattr(two, name)) for name in _COUNTS}
    return Account(**counts, starved_since=starved_since)


_COUNTS = tuple(name for name in Account.__struct_fields__ if name != "starved_since")


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """All accounts since a time. ``epoch`` changes when counting starts anew."""

    epoch: str = ""
    since: float = 0.0
    """Seconds since the epoch."""
    accounts: dict[str, Account] = {}
    session: dict[str, Account] = {}
    """What this process counted of it: a counter of Prometheus starts at 0 with its process. Not sent, not kept."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One pod or group in one round, in millicores. None is not known."""

    key: str
    account: str
    asked_millicores: float | None
    delivered_millicores: float | None
    suppressed_millicores: float | None


def total(parts: Iterable[Mapping[str, Account]]) -> dict[str, Account]:
    """Return the accounts of several nodes together, by name."""
    found: dict[str, Account] = {}
    for accounts in parts:
        for name, account in accounts.items():
            found[name] = found[name].plus(account) if name in found else account
    return found


@dataclasses.dataclass(slots=True)
class _Work:
    """One pod or group that is there now."""

    account: str
    delivered_core_seconds: float = 0.0
    starved_since: float | None = None


class Books:
    """Keeps the accounts of one node."""

    def __init__(self, epoch: str, wall: float) -> None:
        self._epoch = epoch
        self._since = wall
        self._accounts: dict[str, Account] = {}
        self._adopted: dict[str, Account] = {}
        self._active: dict[str, float] = {}
        self._work: dict[str, _Work] = {}

    def adopt(self, kept: Ledger) -> None:
        """Go on with what an earlier process counted; who starved then is not known."""
        self._epoch, self._since = kept.epoch, kept.since
        self._adopted = {
            name: msgspec.structs.replace(account, starved_since=None) for name, account in kept.accounts.items()
        }

    def take(self, entries: Iterable[Entry], seconds: float, wall: float) -> None:
        """Count one round of so many seconds that ended at a wall-clock time; what is not named is gone."""
        there: set[str] = set()
        for entry in entries:
            there.add(entry.key)
            work = self._work.setdefault(entry.key, _Work(entry.account))
            self._active[entry.account] = wall
            self._count(entry, work, seconds, wall)
        self._work = {key: work for key, work in self._work.items() if key in there}
        self._fold()

    def _count(self, entry: Entry, work: _Work, seconds: float, wall: float) -> None:
        before = self._accounts.get(entry.account, Account())
        asked, delivered, suppressed = entry.asked_millicores, entry.delivered_millicores, entry.suppressed_millicores
        if asked is None or delivered is None or suppressed is None:
            more = Account(
                delivered_core_seconds=0.0 if delivered is None else delivered / 1000 * seconds,
                unmeasured_seconds=seconds,
            )
            work.starved_since = None
        else:
            more = Account(
                asked_core_seconds=asked / 1000 * seconds,
                delivered_core_seconds=delivered / 1000 * seconds,
                suppressed_core_seconds=suppressed / 1000 * seconds,
                measured_seconds=seconds,
            )
            share = FED_SHARE if work.starved_since is not None else STARVED_SHARE
            starves = suppressed > 0 and delivered < share * asked
            work.starved_since = (work.starved_since or wall - seconds) if starves else None
        work.delivered_core_seconds += more.delivered_core_seconds
        self._accounts[entry.account] = before.plus(more)

    def evicted(self, key: str) -> None:
        """Count the eviction of a pod or group: what it got so far is lost."""
        work = self._work.pop(key, None)
        if work is not None:
            lost = Account(evicted_core_seconds=work.delivered_core_seconds, evictions=1)
            self._accounts[work.account] = self._accounts.get(work.account, Account()).plus(lost)

    def _fold(self) -> None:
        """Put the accounts that were active longest ago together, as long as there are too many."""
        busy = {work.account for work in self._work.values()} | {OTHERS}
        while len(names := self._accounts.keys() | self._adopted.keys()) > ACCOUNTS_LIMIT:
            idle = min(names - busy, key=lambda name: (self._active.get(name, 0.0), name), default=None)
            if idle is None:
                return
            self._active.pop(idle, None)
            for accounts in (self._accounts, self._adopted):
                if (gone := accounts.pop(idle, None)) is not None:
                    accounts[OTHERS] = accounts.get(OTHERS, Account()).plus(gone)

    def ledger(self) -> Ledger:
        """Return the accounts as they are now."""
        starved: dict[str, float] = {}
        for work in self._work.values():
            if work.starved_since is not None:
                starved[work.account] = min(starved.get(work.account, work.starved_since), work.starved_since)
        session = {
            name: msgspec.structs.replace(account, starved_since=starved.get(name))
            for name, account in self._accounts.items()
        }
        accounts = total([self._adopted, session]) if self._adopted else session
        return Ledger(epoch=self._epoch, since=self._since, accounts=accounts, session=session)
