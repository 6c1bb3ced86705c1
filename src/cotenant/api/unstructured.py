"""Objects of the API server as they came: mappings of which any part may be absent, or null."""

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]


def metadata(value: Object | None) -> Mapping[str, Any]:
    """Return an object's metadata; empty without any, or without an object."""
    return (value or {}).get("metadata") or {}


def labels(value: Object | None) -> Mapping[str, str]:
    """Return an object's labels; empty without any, or without an object."""
    return metadata(value).get("labels") or {}


def annotations(value: Object | None) -> Mapping[str, str]:
    """Return an object's annotations; empty without any, or without an object."""
    return metadata(value).get("annotations") or {}


def uid(value: Object | None) -> str:
    """Return an object's uid, "" where none is known."""
    return str(metadata(value).get("uid") or "")


def generation(value: Object | None) -> int:
    """Return an object's generation, 0 where none is known: the first is 1."""
    return int(metadata(value).get("generation") or 0)
