"""A file that a ConfigMap is mounted as: read at the start, and again whenever it has changed."""

import asyncio
import logging
import pathlib
from collections.abc import Callable
from typing import Generic, TypeVar

from cotenant.units.errors import CotenantError

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

LOOK_SECONDS = 10.0
MAX_BYTES = 1 << 20
"""A ConfigMap holds no more."""


class UnreadableFile(CotenantError):
    """A file that was named on the command line cannot be read."""


class Mounted(Generic[Value]):
    """Keeps what a file says; a state that cannot be read or parsed changes nothing, and is logged once."""

    def __init__(self, path: pathlib.Path, parse: Callable[[str, str], Value]) -> None:
        """Read the file.

        :raises CotenantError: if it cannot be read, or the parser refuses it.
        """
        self._path = path
        self._parse = parse
        self._text = self._read()
        self.value = parse(self._text, str(path))
        self._said = ""

    async def follow(self, take: Callable[[Value], None]) -> None:
        """Hand each new value over until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await asyncio.to_thread(self.look):
                take(self.value)

    def look(self) -> bool:
        """Read the file again; return whether there is a new value."""
        try:
            text = self._read()
            if text == self._text:
                return False
            self._text = text
            self.value = self._parse(text, str(self._path))
        except CotenantError as error:
            if str(error) != self._said:
                self._said = str(error)
                _log.warning("%s; what it said before stays in force", error)
            return False
        self._said = ""
        return True

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                return file.read(MAX_BYTES).decode()
        except OSError as error:
            raise UnreadableFile(f"{self._path}: {error.strerror}; give a file that can be read") from None
        except UnicodeDecodeError:
            raise UnreadableFile(f"{self._path}: not UTF-8 text") from None


def optional(path: pathlib.Path | None, parse: Callable[[str, str], Value]) -> Mounted[Value] | None:
    """Return what keeps up with a file; None where no file was named.

    :raises CotenantError: if it cannot be read, or the parser refuses it.
    """
    return Mounted(path, parse) if path is not None else None
