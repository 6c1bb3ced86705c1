"""Plain data, as JSON and YAML give it."""

from collections.abc import Mapping
from typing import Any


def without_nulls(value: Any) -> Any:
    """Return data without the members that are null, which is the same as absent."""
    if isinstance(value, Mapping):
        return {str(key): without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
