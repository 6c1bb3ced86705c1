"""Conditions of a status: which there are, and since when each has the status that it has."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cotenant.api import timestamp
from cotenant.api.report import Condition
from cotenant.units.malformed import MALFORMED


def read(value: Mapping[str, Any]) -> list[Condition]:
    """Return the conditions in an object's status; none where they are malformed."""
    try:
        return msgspec.convert((value.get("status") or {}).get("conditions") or [], list[Condition])
    except MALFORMED:
        return []


def dated(new: Iterable[Condition], held: Iterable[Condition], now: float) -> list[Condition]:
    """Return conditions with the time of their last change: that of ``held`` where the status is the same, else now.

    ``now`` is in seconds since the epoch.
    """
    since = {(one.type, one.status): one.last_transition_time for one in held}
    return [
        msgspec.structs.replace(one, last_transition_time=since.get((one.type, one.status)) or timestamp.render(now))
        for one in new
    ]
