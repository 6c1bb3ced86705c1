"""Quantities: Kubernetes' ``500m`` and ``2Gi``, durations like ``1s`` and ``500ms``."""

import decimal
import functools
import re

from cotenant.units import errors

_SUFFIXES = {
    "n": decimal.Decimal("1e-9"),
    "u": decimal.Decimal("1e-6"),
    "m": decimal.Decimal("1e-3"),
    "": decimal.Decimal(1),
    "k": decimal.Decimal(10) ** 3,
    "M": decimal.Decimal(10) ** 6,
    "G": decimal.Decimal(10) ** 9,
    "T": decimal.Decimal(10) ** 12,
    "P": decimal.Decimal(10) ** 15,
    "E": decimal.Decimal(10) ** 18,
    "Ki": decimal.Decimal(2) ** 10,
    "Mi": decimal.Decimal(2) ** 20,
    "Gi": decimal.Decimal(2) ** 30,
    "Ti": decimal.Decimal(2) ** 40,
    "Pi": decimal.Decimal(2) ** 50,
    "Ei": decimal.Decimal(2) ** 60,
}
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i))?")
_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(us|ms|s|m|h|d)")
MAX_SECONDS = 1e9
"""Thirty years: what is longer is a slip, and more than the kernel's timers take."""
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class BadQuantity(errors.CotenantError):
    """The text is not a quantity or a duration."""


def parse(value: str | int | float) -> decimal.Decimal:
    """Return the exact value of a Kubernetes quantity (``"500m"`` → 0.5, ``"2Gi"`` → 2147483648, ``4`` → 4).

    :raises BadQuantity: if it is not one, whatever else it is: annotations hold what anybody wrote.
    """
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise BadQuantity(f"quantity {value!r}: write a number with an optional suffix, like 500m, 2 or 4Gi")
    return _parse(value)


@functools.lru_cache(maxsize=1024)
def _parse(value: str | int | float) -> decimal.Decimal:
    match = _QUANTITY.fullmatch(str(value).strip())
    if not match:
        raise BadQuantity(f"quantity {value!r}: write a number with an optional suffix, like 500m, 2 or 4Gi")
    number, exponent, suffix = match.groups()
    return decimal.Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]


def is_quantity(value: str | int | float) -> bool:
    """Return whether it is a quantity."""
    try:
        parse(value)
    except BadQuantity:
        return False
    return True


def millicores(value: str | int | float) -> int:
    """Return CPUs as thousandths, rounded up as Kubernetes does (``"1.5"`` → 1500, ``"100u"`` → 1)."""
    return _ceil(parse(value) * 1000)


def whole(value: str | int | float) -> int:
    """Return the quantity as a whole number (bytes, extended resources), rounded up as Kubernetes does."""
    return _ceil(parse(value))


def _ceil(value: decimal.Decimal) -> int:
    return int(value.to_integral_value(rounding=decimal.ROUND_CEILING))


def seconds(text: str) -> float:
    """Return a duration in seconds: ``1s``, ``500ms``, ``2m30s``.

    :raises BadQuantity: if a unit is missing or unknown, or the duration is not positive or absurd.
    """
    total, end = 0.0, 0
    for match in _DURATION.finditer(text):
        if match.start() != end:
            break
        total += float(match[1]) * _SECONDS[match[2]]
        end = match.end()
    if end != len(text) or not 0 < total < MAX_SECONDS:
        raise BadQuantity(f"duration {text!r}: write a positive number with a unit, like 1s, 500ms or 2m30s")
    return total
