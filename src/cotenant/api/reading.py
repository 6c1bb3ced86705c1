"""Reports as the scheduler reads them: lenient, because one odd field must not hide a node or stop the others."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.api import timestamp
from cotenant.api.report import CLUSTER


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One node's report as the scheduler holds it. Times are seconds since the epoch.

    ``expires_at`` 0: the report does not say until when it holds, so it holds no longer. ``hard`` names the limits in
    force, joined in the report's order; ``kata_faults`` the host facts of Kata that are known to be missing.
    """

    node: str
    level: float | None = None
    coverage: float = 1.0
    bucket: str = "unknown"
    hard: tuple[str, ...] = ()
    triggered: tuple[str, ...] = ()
    observed_at: float | None = None
    expires_at: float = 0.0
    kata_looked: bool = False
    """Whether the node's agent said anything of Kata."""
    kata_faults: tuple[str, ...] = ()
    kata_handlers: frozenset[str] | None = None
    known_part: float = 0.0
    """coverage · level, worked out once when the row is made; 0 without a level."""
    unknown_part: float = 1.0
    """1 − coverage, the weight of the mean that stands in for what is not known; 1 without a level."""

    def __post_init__(self) -> None:
        if self.level is not None:
            msgspec.structs.force_setattr(self, "known_part", self.coverage * self.level)
            msgspec.structs.force_setattr(self, "unknown_part", 1 - self.coverage)


def row_of(item: Mapping[str, Any]) -> Row | None:
    """Return the row of one decoded report, or None where it names no node or is the summary of all nodes.

    A field of the wrong type is unknown; a level or coverage outside 0..1 is brought into it.
    """
    name = _mapping(item.get("metadata")).get("name")
    if name == CLUSTER:
        return None
    node = _mapping(item.get("spec")).get("nodeName") or name
    if not isinstance(node, str) or not node:
        return None
    status = _mapping(item.get("status"))
    coverage = _ratio(status.get("coverage"))
    expires_at = status.get("expiresAt")
    observed_at = status.get("observedAt")
    bucket = status.get("bucket")
    facts = _mapping(_mapping(status.get("nodeFacts")).get("kata"))
    handlers = facts.get("handlers")
    return Row(
        node=node,
        level=_ratio(status.get("interferenceLevel")),
        coverage=1.0 if coverage is None else coverage,
        bucket=bucket if isinstance(bucket, str) else "unknown",
        hard=tuple(limit for limit in _list(status.get("hard")) if isinstance(limit, str)),
        triggered=tuple(
            str(detection["type"])
            for detection in _list(status.get("detections"))
            if isinstance(detection, dict) and detection.get("triggered") is True and "type" in detection
        ),
        observed_at=timestamp.parse(observed_at) if isinstance(observed_at, str) else None,
        expires_at=(timestamp.parse(expires_at) if isinstance(expires_at, str) else None) or 0.0,
        kata_looked=bool(facts),
        kata_faults=tuple(sorted(fact for fact, state in facts.items() if state is False)),
        kata_handlers=(
            frozenset(entry for entry in handlers if isinstance(entry, str)) if isinstance(handlers, list) else None
        ),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _ratio(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return float(min(max(value, 0), 1))  # a whole number may be too large for a float
