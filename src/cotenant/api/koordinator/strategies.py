"""Arithmetic of strategies: which fields of parsed JSON a struct knows, what is wrong with their values, and one
strategy laid over another. Strategies stay plain JSON, so that what was not said stays absent.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cotenant.units import quantity
from cotenant.units.malformed import MALFORMED, problem

Json = Any
_STEP = re.compile(r'([^.\[]+)|\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]')


@dataclasses.dataclass(frozen=True, slots=True)
class Checks:
    """What values may be, by field name: least and greatest, words, pairs of which the first must be smaller, which
    texts must be quantities, and which numbers beside such texts are percentages.
    """

    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    ordered: tuple[tuple[str, str], ...] = ()
    quantities: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()


def known(value: Json, kind: Any, unknown: list[str], place: str = "") -> Json:
    """Return the value with the fields that ``kind`` has, spelled as it spells them, and without nulls.

    As Go decodes it: case does not matter, a null is nothing said, and a field that the kind does not have is left out
    (and its place is added to ``unknown``).
    """
    struct, item = _struct_of(kind), _item_of(kind)
    if struct is not None and isinstance(value, Mapping):
        hints = typing.get_type_hints(struct)
        fields = {field.encode_name.lower(): field for field in msgspec.structs.fields(struct)}
        kept = {}
        for key, inner in value.items():
            field = fields.get(str(key).lower())
            if field is None:
                unknown.append(_join(place, key))
            elif inner is not None:
                name = field.encode_name
                kept[name] = known(inner, hints[field.name], unknown, _join(place, name))
        return kept
    if item is not None and isinstance(value, Mapping):
        return {k: known(v, item, unknown, _join(place, k)) for k, v in value.items() if v is not None}
    if item is not None and isinstance(value, list):
        return [known(one, item, unknown, f"{place}[{index}]") for index, one in enumerate(value)]
    return value


def complaints(value: Json, kind: Any, checks: Checks, place: str = "") -> Iterator[str]:
    """Yield what is wrong with a strategy: place, value, and what it should be."""
    try:
        msgspec.convert(value, kind)
    except MALFORMED as error:
        text, _, path = problem(error, value, kind).partition(" - at ")
        where = path.strip("`").removeprefix("$").removeprefix(".")
        yield f"{_join(place, where) or 'it'} is {_short(_at(value, where))}: {text[:1].lower()}{text[1:]}"
        return
    yield from _out_of_bounds(value, checks, place)


def _out_of_bounds(value: Json, checks: Checks, place: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from _out_of_bounds(one, checks, f"{place}[{index}]")
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        where = _join(place, key)
        low, high = checks.ranges.get(key, (None, None))
        words = checks.choices.get(key)
        numbers = inner if isinstance(inner, Mapping) and low is not None else {None: inner}
        for name, number in numbers.items():
            if low is not None and high is not None and isinstance(number, int | float) and not low <= number <= high:
                spot = where if name is None else _join(where, name)
                yield f"{spot} is {_short(number)}: not within {_number(low)}..{_number(high)}"
        if words is not None and isinstance(inner, str) and inner and inner not in words:
            yield f"{where} is {_short(inner)}: not one of {', '.join(words)}"
        if key in checks.quantities and isinstance(inner, str) and not quantity.is_quantity(inner):
            yield f"{where} is {_short(inner)}: not a quantity, for example 10G"
        if key in checks.shares and isinstance(inner, int) and not 0 <= inner <= 100:
            yield f"{where} is {_short(inner)}: not within 0..100 percent; write bits a second as text"
        yield from _out_of_bounds(inner, checks, where)
    for lower, upper in checks.ordered:
        if isinstance(value.get(lower), int) and isinstance(value.get(upper), int) and value[lower] >= value[upper]:
            yield f"{_join(place, lower)} is {value[lower]}: not below {upper}, which is {value[upper]}"


def merge(base: Json, over: Json, kind: Any) -> Json:
    """Return ``base`` with everything that ``over`` says; a struct field by field, a map key by key, a list whole."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    struct = _struct_of(kind)
    if struct is None:
        return {**base, **over}
    hints = typing.get_type_hints(struct)
    kinds = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}
    merged = dict(base)
    for key, value in over.items():
        merged[key] = merge(merged[key], value, kinds.get(key)) if key in merged else value
    return merged


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a type is, alone or beside None."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next((found for part in typing.get_args(kind) if (found := _struct_of(part)) is not None), None)
    return None


def _item_of(kind: Any) -> Any:
    """Return the type of the values of a map or the items of a list, or None where it is neither."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return next((found for part in arguments if (found := _item_of(part)) is not None), None)
    if origin is None or not isinstance(origin, type):
        return None
    if issubclass(origin, Mapping):
        return arguments[1]
    return arguments[0] if issubclass(origin, list | tuple) else None


def _at(value: Json, path: str) -> Json:
    """Return what is at a path like ``a.b[0].c["d"]``; the value itself where the path leads nowhere."""
    for name, key, index in _STEP.findall(path):
        if index and isinstance(value, list):
            value = value[int(index)]
        elif isinstance(value, Mapping) and (name or key) in value:
            value = value[name or key]
    return value


def _join(place: str, key: object) -> str:
    return f"{place}.{key}" if place and key != "" else f"{place}{key}"


def _short(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:59]}…"


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else "…"
