"""The ledger of offline work as people and Prometheus read it: on pages, in ``/metrics``, in ``explain offline``."""

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from cotenant.model.ledger import Account

SERIES_ACCOUNTS = 100
"""Accounts with series of their own: those that asked for most."""
SHOWN = 50
_COUNTERS = (
    ("asked_core_seconds", "CPU that offline work asked for."),
    ("delivered_core_seconds", "CPU that offline work got."),
    ("suppressed_core_seconds", "CPU that offline work did not get because of a limit of ours."),
    ("evicted_core_seconds", "CPU that work had got before we evicted it."),
    ("evictions", "Offline work that we evicted."),
    ("unmeasured_seconds", "Time in which what offline work got or lost was not known."),
)


def largest(accounts: Mapping[str, Account], limit: int) -> list[tuple[str, Account]]:
    """Return up to so many accounts, those that asked for most first."""
    found = sorted(accounts.items(), key=lambda item: (-item[1].asked_core_seconds, item[0]))
    return found[:limit]


def metrics_of(accounts: Mapping[str, Account], label: str, now: float) -> Iterator[Metric]:
    """Yield the families of the accounts; ``label`` says what they are, ``now`` is seconds since the epoch."""
    chosen = largest(accounts, SERIES_ACCOUNTS)
    for field, text in _COUNTERS:
        family = CounterMetricFamily(f"cotenant_offline_{field}", text, labels=(label,))
        for name, account in chosen:
            family.add_metric([name], getattr(account, field))
        yield family
    starving = GaugeMetricFamily(
        "cotenant_offline_starvation_seconds",
        "For how long offline work has been starving; absent where none does.",
        labels=(label,),
        unit="seconds",
    )
    for name, account in chosen:
        if account.starved_since is not None:
            starving.add_metric([name], max(now - account.starved_since, 0.0))
    yield starving


def rows_of(accounts: Mapping[str, Account], now: float) -> list[dict[str, Any]]:
    """Return what a table of accounts shows, in core-hours."""
    return [
        {
            "name": name,
            "asked": number_text(account.asked_core_seconds),
            "delivered": number_text(account.delivered_core_seconds),
            "share": share_text(account.delivered_core_seconds, account.asked_core_seconds),
            "suppressed": number_text(account.suppressed_core_seconds),
            "evicted": number_text(account.evicted_core_seconds),
            "evictions": account.evictions,
            "starving": None if account.starved_since is None else age_text(now - account.starved_since),
            "unmeasured": _unmeasured(account),
        }
        for name, account in largest(accounts, SHOWN)
    ]


def _unmeasured(account: Account) -> str:
    watched = account.measured_seconds + account.unmeasured_seconds
    return share_text(account.unmeasured_seconds, watched) if account.unmeasured_seconds else ""


def sentences(name: str, account: Account, since: float, now: float) -> list[str]:
    """Return what the owner of offline work wants to know, in sentences with numbers."""
    began = datetime.datetime.fromtimestamp(since, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    asked, got = account.asked_core_seconds, account.delivered_core_seconds
    lost, evicted = account.suppressed_core_seconds, account.evicted_core_seconds
    share = f" ({share_text(got, asked)})" if asked > 0 else ""
    said = [f"Since {began} {name} asked for {hours_text(asked)} and got {hours_text(got)}{share}."]
    if lost > 0:
        said.append(f"{hours_text(lost)} were held back while online work needed the machine.")
    else:
        said.append("Nothing was held back by a limit of cotenant.")
    if account.evictions:
        times = "once" if account.evictions == 1 else f"{account.evictions} times"
        said.append(f"It was evicted {times}: {hours_text(evicted)} of what it got are to be done again.")
    rest = asked - got - lost
    if asked > 0 and rest > 0.01 * asked:
        said.append(f"{hours_text(rest)} it did not use, or lost to work of higher priority on the same CPUs.")
    if account.starved_since is not None:
        age = age_text(now - account.starved_since)
        said.append(f"It starves now, for {age}: it is held back and gets less than a fifth of what it asks for.")
    if account.unmeasured_seconds > 0:
        said.append(f"{_unmeasured(account)} of the time could not be measured; what was lost then is in no number.")
    return said


def number_text(core_seconds: float) -> str:
    """Return core-seconds in core-hours, without the unit."""
    hours = core_seconds / 3600
    return "0" if core_seconds == 0 else f"{hours:,.1f}" if hours >= 10 else f"{hours:.3f}"


def hours_text(core_seconds: float) -> str:
    """Return core-seconds in the unit that people think in."""
    if core_seconds < 60:
        return f"{core_seconds:.0f} core-seconds"
    if core_seconds < 3600:
        return f"{core_seconds / 60:.1f} core-minutes"
    return f"{core_seconds / 3600:,.1f} core-hours"


def share_text(part: float, whole: float) -> str:
    """Return a part of a whole in percent; a dash where there is no whole."""
    return f"{part / whole:.0%}".replace("%", " %") if whole > 0 else "–"


def age_text(seconds: float) -> str:
    """Return a length of time in its largest unit."""
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
