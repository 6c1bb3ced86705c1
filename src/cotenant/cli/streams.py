"""The standard streams of a command: each is there, names itself when it fails, and takes every character."""

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ESCAPES = "cotenant-escapes"
"""What an encoding cannot say is written as in JSON: that of a locale without UTF-8 is then read by programs too."""


class _Output(io.FileIO):
    """Standard output, whose error says that it is meant; what is written after it goes nowhere.

    Else Python would complain again when it flushes what it still holds.
    """

    def write(self, data: "ReadableBuffer", /) -> int:
        if not data:
            return 0  # click asks in this way what a stream takes, and passes over the answer of a full disk
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise OSError(error.errno, error.strerror, "standard output") from error


class _Remarks(io.FileIO):
    """Standard error, where a remark that cannot be written is lost and nothing else."""

    def write(self, data: "ReadableBuffer", /) -> int:
        with contextlib.suppress(OSError):
            return super().write(data)
        return len(memoryview(data))


def open_all() -> None:
    """Make the three streams fit; one that was closed before we started is one that nobody reads or writes."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, closefd=False))
    codecs.register_error(ESCAPES, _escaped)
    sys.stdout = _over(_Output, sys.stdout, ESCAPES)
    sys.stderr = _over(_Remarks, sys.stderr, "backslashreplace")


def _over(kind: type[io.FileIO], stream: TextIO, errors: str) -> io.TextIOWrapper:
    """Return a text stream over the same descriptor, flushed as often as the one that is given."""
    assert isinstance(stream, io.TextIOWrapper)
    raw = kind(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _escaped(error: UnicodeError) -> tuple[bytes, int]:
    """Encode what an encoding cannot: a byte of a file's name as it was, a character as JSON escapes it."""
    assert isinstance(error, UnicodeEncodeError)
    written = bytearray()
    for character in error.object[error.start : error.end]:
        lone = 0xDC80 <= ord(character) <= 0xDCFF
        written += bytes([ord(character) - 0xDC00]) if lone else json.dumps(character)[1:-1].encode()
    return bytes(written), error.end


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """Print inside what goes with work that is done for its own sake: that nobody reads on (`| head`) ends no work.

    :raises OSError: if stdout refuses for another reason.
    """
    with contextlib.suppress(BrokenPipeError):
        yield
        sys.stdout.flush()
