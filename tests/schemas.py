"""Kubernetes's own schemas, version by version."""

import functools
from typing import Any

from kubernetes_validate import ValidationError, utils

__all__ = ["ValidationError", "validate"]

# To read a version's definitions from their file takes three times as long as to check an object by them.
utils.schema_contents = functools.lru_cache(maxsize=32)(utils.schema_contents)


def validate(value: dict[str, Any], version: str) -> str:
    """Check an object by the schemas of a version, unknown fields refused; return the version that was found.

    :raises ValidationError: if it is not valid.
    """
    return str(utils.validate(value, version, strict=True))
