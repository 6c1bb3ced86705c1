"""Top-level keys in any case: Go's JSON decoder does not tell ``Pod`` from ``pod``, so neither do we."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from cotenant.api.errors import BadRequest

Decoded = TypeVar("Decoded")

_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode(body: bytes, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    """Return the decoded request.

    :raises BadRequest: if it is not JSON, nests too deeply, or a value has the wrong type.
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"request body: {error}") from None
    except RecursionError:
        raise BadRequest("request body: nested too deeply") from None


def decode_folded(body: bytes, decoder: msgspec.json.Decoder[Decoded], names: Mapping[str, str]) -> Decoded:
    """Return the request decoded with its top-level keys spelled as ``names`` (lower case → right case) says.

    :raises BadRequest: as :func:`decode`.
    """
    top = decode(body, _top_level)
    folded = {names.get(key.lower(), key): value for key, value in top.items()}
    folded.update((key, value) for key, value in top.items() if key in names.values())  # the exact key wins, as in Go
    return decode(msgspec.json.encode(folded), decoder)
