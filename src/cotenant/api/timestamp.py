"""Times as Kubernetes writes them: RFC 3339, UTC."""

import datetime


def parse(text: str | None) -> float | None:
    """Return seconds since the epoch, or None where the text is not a time with an offset."""
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def render(seconds: float) -> str:
    """Return whole seconds since the epoch in UTC, as ``2026-11-30T00:00:00Z``."""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
