"""The rules that were in force, by revision: small JSON files in a directory, newest last, bounded in number.

``up --rules FILE`` records each set of rules that it takes; ``cotenant config history`` lists them, and ``config
rollback`` writes the text of an earlier one back to the file, from which a running ``up`` takes it like any change.
"""

import datetime
import os
import pathlib
import re
import tempfile
from typing import Literal

import msgspec

from cotenant.detect import parser
from cotenant.units import errors
from cotenant.units.malformed import MALFORMED

MOST = 50
"""Revisions kept; a file of rules is a few KiB."""

Cause = Literal["start", "change", "rollback"]
_FILE = re.compile(r"([0-9]{6,})\.json")


class RevisionError(errors.CotenantError):
    """No such revision, or the directory cannot be used."""


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One set of rules: its number, when and why it came into force, the file it was read from, and the file's text."""

    number: int
    time: str
    cause: Cause
    file: str
    text: str


class Revisions:
    """The revisions of one data directory, in its folder ``rules``."""

    def __init__(self, data: pathlib.Path) -> None:
        self.directory = data / "rules"

    def history(self) -> list[Revision]:
        """Return the revisions, oldest first; a file that is not one is left out.

        :raises RevisionError: if the directory cannot be read.
        """
        found = []
        for path in self._paths():
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Revision))
            except (OSError, *MALFORMED):
                continue  # half-written by a crash, or removed meanwhile: the others still tell what was in force
        return sorted(found, key=lambda revision: revision.number)

    def record(self, text: str, file: str, cause: Cause, now: float) -> Revision:
        """Keep the text of rules that came into force at a time (seconds since the epoch); the same text twice is once.

        :raises RevisionError: if it cannot be written.
        """
        history = self.history()
        if history and (history[-1].text, history[-1].file) == (text, file):
            return history[-1]
        number = history[-1].number + 1 if history else 1
        time = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        revision = Revision(number=number, time=time, cause=cause, file=file, text=text)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            replace(self.directory / f"{number:06}.json", msgspec.json.encode(revision))
            for path in self._paths()[:-MOST]:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise RevisionError(f"{self.directory}: cannot keep the rules: {error.strerror}") from error
        return revision

    def before(self, number: int | None) -> Revision:
        """Return a revision by number, or with None the newest whose text is not the one in force.

        :raises RevisionError: if there is none.
        """
        history = self.history()
        if not history:
            raise RevisionError(f"{self.directory}: no revision is kept; up --rules FILE keeps them")
        if number is None:
            earlier = [revision for revision in history if revision.text != history[-1].text]
            if not earlier:
                raise RevisionError(f"{self.directory}: there is nothing before revision {history[-1].number}")
            return earlier[-1]
        for revision in history:
            if revision.number == number:
                return revision
        raise RevisionError(f"{self.directory}: no revision {number}; there are {_ranges(history)}")

    def roll_back(self, number: int | None, file: pathlib.Path | None = None) -> Revision:
        """Write a revision's text back to the file it was read from, or to another; a running ``up`` takes it then.

        :raises RevisionError: if there is no such revision, or the file cannot be written.
        :raises BadRules: if its text is refused by now.
        """
        revision = self.before(number)
        parser.parse(revision.text, f"revision {revision.number}")
        target = file or pathlib.Path(revision.file)
        try:
            replace(target, revision.text.encode())
        except OSError as error:
            raise RevisionError(f"{target}: cannot be written: {error.strerror}") from error
        return revision

    def _paths(self) -> list[pathlib.Path]:
        try:
            names = [path for path in self.directory.iterdir() if _FILE.fullmatch(path.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RevisionError(f"{self.directory}: cannot be read: {error.strerror}") from error
        return sorted(names, key=lambda path: int(path.stem))


def replace(path: pathlib.Path, content: bytes) -> None:
    """Replace a file's content so that a reader, or a crash, sees the old or the new one; its mode stays.

    :raises OSError: if it cannot be written.
    """
    target = path.resolve()  # a link stays a link
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _ranges(history: list[Revision]) -> str:
    return f"{history[0].number} to {history[-1].number}" if len(history) > 1 else f"only {history[0].number}"
