"""A change of rules is on trial: should it push too many nodes past a hard limit, it is taken back. Pure."""

import dataclasses
from collections.abc import Callable

from cotenant.detect.rules import Guard


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """Of the nodes that one object's rules judge: how many are past a hard limit, of how many."""

    limited: int
    nodes: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Trial:
    generation: int
    guard: Guard
    limited_before: int
    until: float


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """What another leader needs to go on with a trial."""

    limited_before: int
    seconds_left: float


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A change that did not pass: the object, its generation, and what happened."""

    name: str
    generation: int
    text: str


class Trials:
    """The changes on trial. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._trials: dict[str, _Trial] = {}

    def start(self, name: str, generation: int, guard: Guard, limited_before: int, now: float) -> None:
        """Put a change on trial, in place of an earlier one of the same object."""
        self._trials[name] = _Trial(generation, guard, limited_before, now + guard.trial_seconds)

    def note(self, name: str, generation: int, now: float) -> Note | None:
        """Return what is to be kept of the trial of a generation; None where it is not on trial."""
        trial = self._trials.get(name)
        if trial is None or trial.generation != generation:
            return None
        return Note(trial.limited_before, max(0.0, trial.until - now))

    def end(self, name: str) -> None:
        """Forget an object's trial."""
        self._trials.pop(name, None)

    def failures(self, share_of: Callable[[str], Share], now: float) -> list[Failure]:
        """Return the changes that did not pass, and end their trials, and those whose time is over.

        One node past a limit is an incident, not a wrong rule, however few nodes there are.
        """
        failed = []
        for name, trial in list(self._trials.items()):
            share = share_of(name)
            most = max(1.0, trial.guard.max_excluded_fraction * share.nodes)
            if share.limited > most and share.limited > trial.limited_before:
                text = (
                    f"{share.limited} of {share.nodes} nodes came past a hard limit within "
                    f"{trial.guard.trial_seconds:g} s of the change (guard.maxExcludedFraction "
                    f"{trial.guard.max_excluded_fraction:g}, before {trial.limited_before})"
                )
                failed.append(Failure(name, trial.generation, text))
            elif now < trial.until:
                continue
            del self._trials[name]
        return failed
