"""Rules from a file that may change while the program runs: validated, then swapped; a bad file changes nothing."""

import logging
import os
import pathlib
from collections.abc import Callable
from typing import Protocol

from cotenant.detect import parser, presets, rules
from cotenant.detect.rules import Rules
from cotenant.model.evaluation import Evaluation
from cotenant.model.sample import Sample
from cotenant.units.errors import CotenantError
from cotenant.web.feed import Refused, RulesState

log = logging.getLogger(__name__)

SIZE_LIMIT_BYTES = 1 << 20

Fingerprint = tuple[int, int, int, int]


class UnreadableRules(CotenantError):
    """The rules file cannot be read."""


class Engine(Protocol):
    """What judges samples: :class:`cotenant.detect.engine.Engine`."""

    def evaluate(self, sample: Sample) -> Evaluation:
        """Return the state of the node at the end of the sample."""
        ...

    def replace(self, source: Rules) -> None:
        """Judge by other rules from now on; what is triggered stays so until it leaves."""
        ...


class PresetJudge:
    """Judges by a preset, which never changes."""

    def __init__(self, engine: Callable[[Rules], Engine]) -> None:
        self._engine = engine(presets.get())

    def evaluate(self, sample: Sample) -> Evaluation:
        return self._engine.evaluate(sample)

    def rules_state(self) -> RulesState:
        return RulesState(source="preset default")

    def refresh(self) -> None:
        return

    def roll_back(self, revision: int | None) -> RulesState:
        raise Refused("the rules are the preset's own: start with --rules FILE to have revisions")


class FileJudge:
    """Judges by a file. Looks at it each tick (one stat) and reads it when it has changed."""

    def __init__(self, path: pathlib.Path, period_s: float, engine: Callable[[Rules], Engine]) -> None:
        self._path = path
        self._period_s = period_s
        self._seen = fingerprint(path)
        self._engine = engine(read(path, period_s))
        self._error: str | None = None

    def evaluate(self, sample: Sample) -> Evaluation:
        return self._engine.evaluate(sample)

    def rules_state(self) -> RulesState:
        return RulesState(source=str(self._path), error=self._error)

    def refresh(self) -> None:
        seen = fingerprint(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._engine.replace(read(self._path, self._period_s))
        except CotenantError as error:
            self._error = str(error)
            log.warning("rules refused, the ones before stay in force: %s", error)
            return
        self._error = None
        log.info("rules: %s was read again and is in force", self._path)

    def roll_back(self, revision: int | None) -> RulesState:
        raise Refused("no earlier revision is kept")


def fingerprint(path: pathlib.Path) -> Fingerprint | None:
    """Return what tells one state of a file from another, or None when it cannot be looked at."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def read(path: pathlib.Path, period_s: float) -> Rules:
    """Return the rules of a file.

    :raises UnreadableRules: if it cannot be read.
    :raises cotenant.detect.errors.BadRules: if it is refused.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_LIMIT_BYTES + 1)
        text = raw.decode()
    except OSError as error:
        raise UnreadableRules(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableRules(f"{path}: not UTF-8 text") from error
    if len(raw) > SIZE_LIMIT_BYTES:
        raise UnreadableRules(f"{path}: larger than {SIZE_LIMIT_BYTES} bytes")
    found = rules.select([parsed.rules for parsed in parser.parse(text, str(path), period_s)], {})
    if found is None:
        raise UnreadableRules(f"{path}: every object has a nodeSelector; one host needs one without")
    return found
