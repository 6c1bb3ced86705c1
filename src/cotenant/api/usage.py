"""The usage table that the analyzer sends to the manager: one row a node, as JSON in the message of the stream."""

import msgspec


class PodRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pod: ``[millicores, bytes, offline]``, null where unknown.

    CPU is a mean over the table's period. Memory is what cannot be dropped, or all of it where the node cannot tell.
    """

    cpu_millicores: float | None = None
    memory_bytes: int | None = None
    is_offline: bool = False


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one node and its pods (``namespace/name``) used since the last table."""

    cpu_millicores: float | None = None
    memory_used_ratio: float | None = None
    """Of the node's memory: 1 less what is available."""
    pods: dict[str, PodRow] = {}


_decoder = msgspec.json.Decoder(Row)
_encoder = msgspec.json.Encoder()


def encode(row: Row) -> bytes:
    """Return the row as JSON."""
    return _encoder.encode(row)


def decode(text: bytes) -> Row:
    """Return the row of a JSON object; keys that we do not know are ignored.

    :raises msgspec.DecodeError: if it is none, or a value has the wrong type.
    """
    return _decoder.decode(text)
