"""Rules from a file that may change while the program runs: validated, then swapped; a bad file changes nothing.

Each set of rules that was in force is kept as a revision; rolling back writes an earlier one to the file, from which
it is taken like any other change.
"""

import logging
import os
import pathlib
from collections.abc import Callable
from typing import Protocol

from cotenant.detect import parser, presets
from cotenant.detect.errors import BadRules
from cotenant.detect.rules import Rules
from cotenant.local import rules_file
from cotenant.local.revisions import Cause, RevisionError, Revisions
from cotenant.model.evaluation import Evaluation
from cotenant.model.sample import Sample
from cotenant.units.clock import Clock
from cotenant.web.feed import Refused, RulesState

log = logging.getLogger(__name__)

Fingerprint = tuple[int, int, int, int]


class Engine(Protocol):
    """What judges samples: :class:`cotenant.detect.engine.Engine`."""

    def evaluate(self, taken: Sample) -> Evaluation:
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
    """Judges by a file. Looks at it each tick (one stat) and reads it when it has changed.

    :raises BadRules: if the file is refused already at the start.
    """

    def __init__(
        self,
        path: pathlib.Path,
        period_s: float,
        engine: Callable[[Rules], Engine],
        revisions: Revisions,
        clock: Clock,
    ) -> None:
        self._path = path.absolute()
        self._period_s = period_s
        self._revisions = revisions
        self._clock = clock
        self._revision: int | None = None
        self._error: str | None = None
        self._seen = fingerprint(self._path)
        text, rules = self._read()
        self._engine = engine(rules)
        self._keep(text, "start")

    def evaluate(self, sample: Sample) -> Evaluation:
        return self._engine.evaluate(sample)

    def rules_state(self) -> RulesState:
        return RulesState(source=str(self._path), revision=self._revision, error=self._error)

    def refresh(self) -> None:
        self._take("change")

    def roll_back(self, revision: int | None) -> RulesState:
        try:
            self._revisions.roll_back(revision, self._path)
        except (RevisionError, BadRules) as error:
            raise Refused(str(error)) from error
        self._take("rollback")
        return self.rules_state()

    def _take(self, cause: Cause) -> None:
        """Take the file as it is now, if it is not as it was."""
        seen = fingerprint(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            text, rules = self._read()
        except BadRules as error:
            self._error = str(error)
            log.warning("rules refused, the ones before stay in force: %s", error)
            return
        self._engine.replace(rules)
        self._error = None
        self._keep(text, cause)
        log.info("rules: %s is in force (%s, revision %s)", self._path, cause, self._revision)

    def _read(self) -> tuple[str, Rules]:
        text = rules_file.read_text(self._path, plain=True)
        return text, rules_file.for_one_host(parser.parse(text, str(self._path), self._period_s)).rules

    def _keep(self, text: str, cause: Cause) -> None:
        try:
            self._revision = self._revisions.record(text, str(self._path), cause, self._clock.wall()).number
        except RevisionError as error:
            self._revision = None
            log.warning("no revision of these rules is kept: %s", error)


def fingerprint(path: pathlib.Path) -> Fingerprint | None:
    """Return what tells one state of a file from another, or None when it cannot be looked at."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
