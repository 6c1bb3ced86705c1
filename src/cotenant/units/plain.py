"""Plain data, as JSON and YAML give it."""

from collections.abc import Mapping
from typing import Any


def without_nulls(value: Any, *, elements: bool = False) -> Any:
    """Return data without the members that are null, which is the same as absent; of lists only with ``elements``."""
    if isinstance(value, Mapping):
        return {str(key): without_nulls(item, elements=elements) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item, elements=elements) for item in value if item is not None or not elements]
    return value
