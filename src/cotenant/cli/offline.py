"""What ``cotenant explain offline`` prints: what offline work asked for, got and lost."""

import time
from collections.abc import Callable

import msgspec
import typer

from cotenant.units import errors
from cotenant.units.malformed import MALFORMED


class NoLedger(errors.CotenantError):
    """There is no ledger, or it has no such account."""


def show(name: str | None, url: str, get: Callable[[str], bytes], as_json: bool) -> None:
    """Print a namespace's (or a group's) account; without a name, all of them.

    :raises NoLedger: if nobody keeps one, or there is no such account.
    """
    from cotenant.cli import printing
    from cotenant.model.ledger import Ledger
    from cotenant.web import ledger as wording

    url = url.rstrip("/")
    try:
        found = msgspec.json.decode(get(f"{url}/api/v1/ledger"), type=Ledger)
    except MALFORMED as error:
        raise NoLedger(f"{url}: not a ledger: {error}") from error
    now = time.time()
    if name is None:
        if as_json:
            printing.print_json(found)
            return
        columns = ["CORE-HOURS OF", "ASKED", "GOT", "SHARE", "HELD BACK", "EVICTED", "STARVING"]
        keys = ("name", "asked", "delivered", "share", "suppressed", "evicted", "starving")
        rows = [tuple(str(row[key] or "–") for key in keys) for row in wording.rows_of(found.accounts, now)]
        printing.print_table(columns, rows, "No offline work was seen yet.")
        return
    account = found.accounts.get(name)
    if account is None:
        known = ", ".join(sorted(found.accounts)[:10]) or "none"
        raise NoLedger(f"{url}: no offline work of {name!r} was seen; there is {known}")
    said = wording.sentences(name, account, found.since, now)
    if as_json:
        printing.print_json({"name": name, "since": found.since, "account": account, "sentences": said})
    else:
        typer.echo("\n".join(said))
