"""JSON as Go reads it: keys in any case, and null wherever a field may be left out.

Schedulers spell every key exactly and leave no null where we do not expect one, so the plain decoder does the work;
only what it cannot read, or finds incomplete, is looked at again.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from cotenant.api.errors import BadRequest
from cotenant.units import plain

Decoded = TypeVar("Decoded")

LARGE_BYTES = 4 << 20
"""A larger body is read once, as it is spelled, and not when it is made of next to nothing but small values: what comes
out of a byte of those takes twenty, and schedulers, which could send such a body, have 28 bytes to a value."""
LEAST_BYTES_PER_VALUE = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """The right spelling of a key, and of the keys in its value; ``each``: in each element or entry of its value."""

    name: str
    keys: "Mapping[str, Key]" = dataclasses.field(default_factory=dict)
    each: "Mapping[str, Key]" = dataclasses.field(default_factory=dict)


def spelled(*names: str, **nested: Key) -> dict[str, Key]:
    """Return keys by their lower case: ``names`` without keys of interest below them, ``nested`` with."""
    return {name.lower(): Key(name) for name in names} | {key.name.lower(): key for key in nested.values()}


def decode(body: bytes, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    """Return the decoded request; null is taken for a key or element that is not there.

    :raises BadRequest: if it is not JSON, nests too deeply, a value has the wrong type, or there are too many.
    """
    if len(body) > LARGE_BYTES and body.count(b",") * LEAST_BYTES_PER_VALUE > len(body):
        raise BadRequest(f"request body: more than one value in {LEAST_BYTES_PER_VALUE} of {len(body)} bytes")
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError:
            if len(body) > LARGE_BYTES:
                raise
            return decoder.decode(msgspec.json.encode(plain.without_nulls(msgspec.json.decode(body), elements=True)))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"request body: {error}") from None
    except RecursionError:
        raise BadRequest("request body: nested too deeply") from None


def decode_folded(body: bytes, decoder: msgspec.json.Decoder[Decoded], keys: Mapping[str, Key]) -> Decoded:
    """Return the request decoded with the keys spelled as ``keys`` says, whatever their case in one that is not large.

    :raises BadRequest: as :func:`decode`.
    """
    if len(body) > LARGE_BYTES:
        return decode(body, decoder)
    return decode(msgspec.json.encode(_fold(decode(body, _anything), keys)), decoder)


_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _fold(value: Any, keys: Mapping[str, Key]) -> Any:
    if not keys or not isinstance(value, dict):
        return value
    folded: dict[str, Any] = {}
    for given, inner in value.items():
        key = keys.get(given.lower(), Key(given))
        if key.name == given or key.name not in value:  # the exact key wins, as in Go
            folded[key.name] = _fold_below(inner, key)
    return folded


def _fold_below(value: Any, key: Key) -> Any:
    if key.each and isinstance(value, list):
        return [_fold(inner, key.each) for inner in value]
    if key.each and isinstance(value, dict):
        return {name: _fold(inner, key.each) for name, inner in value.items()}
    return _fold(value, key.keys)
