"""Label selectors as Kubernetes has them: ``matchLabels`` and ``matchExpressions``, all of which must hold."""

import dataclasses
import re
from collections.abc import Mapping

import msgspec

from cotenant.units import errors

MAX_NAME_CHARACTERS = 63
MAX_PREFIX_CHARACTERS = 253
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


class BadSelector(errors.CotenantError):
    """A selector that does not parse."""


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """One expression: the label `key` is `In` or `NotIn` the values, or `Exists`, or `DoesNotExist`."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which labels an object must have. An empty selector matches every object."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Selector:
    """A selector that was found to be good."""

    requirements: tuple[Requirement, ...]

    @property
    def empty(self) -> bool:
        """Whether it matches everything."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return all(_holds(requirement, labels) for requirement in self.requirements)

    def excludes(self, other: "Selector") -> bool:
        """Return whether it is plain that no object is selected by both; False where only the objects can tell."""
        return any(
            _contradict(mine, theirs)
            for mine in self.requirements
            for theirs in other.requirements
            if mine.key == theirs.key
        )

    def query(self) -> str:
        """Return it as the API server's ``labelSelector`` takes it; empty where it matches everything."""
        return ",".join(_query(requirement) for requirement in self.requirements)


EVERYTHING = Selector(())


def compiled(selector: LabelSelector | None, place: str) -> Selector:
    """Return a selector that can be asked; without one, one that matches everything.

    :raises BadSelector: if a key, an operator or a value is not one, with ``place`` before what is wrong.
    """
    if selector is None:
        return EVERYTHING
    requirements = [
        Requirement(key=key, operator="In", values=[value]) for key, value in (selector.match_labels or {}).items()
    ]
    for requirement in requirements:
        _check(requirement, f"{place}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions or ()):
        _check(requirement, f"{place}.matchExpressions[{index}]")
        requirements.append(requirement)
    return Selector(tuple(requirements))


def name_problem(key: str) -> str | None:
    """Return what keeps a text from being the key of a label or an annotation, or None where it is one."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (_DOMAIN.fullmatch(prefix) and len(prefix) <= MAX_PREFIX_CHARACTERS):
        return f"{key[:80]!r}: the part before / must be a domain name in lower case"
    if not (_NAME.fullmatch(name) and len(name) <= MAX_NAME_CHARACTERS):
        return f"{key[:80]!r}: a name has up to 63 letters, digits, - _ or ., with a letter or digit at both ends"
    return None


def value_problem(value: str) -> str | None:
    """Return what keeps a text from being the value of a label, or None where it is one."""
    if value and not (_NAME.fullmatch(value) and len(value) <= MAX_NAME_CHARACTERS):
        return f"{value[:80]!r}: a value has up to 63 letters, digits, - _ or ., with a letter or digit at both ends"
    return None


def _check(requirement: Requirement, place: str) -> None:
    values = requirement.values or []
    problem = name_problem(requirement.key)
    if problem is None and requirement.operator in ("In", "NotIn"):
        problem = "values must not be empty" if not values else None
        problem = problem or next((found for found in map(value_problem, values) if found), None)
    elif problem is None and requirement.operator in ("Exists", "DoesNotExist"):
        problem = f"{requirement.operator} takes no values" if values else None
    elif problem is None:
        problem = f"operator {requirement.operator[:40]!r}: give In, NotIn, Exists or DoesNotExist"
    if problem is not None:
        raise BadSelector(f"{place}: {problem}")


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    operator = requirement.operator
    if operator == "In":
        return labels.get(requirement.key) in (requirement.values or ())
    if operator == "NotIn":
        return requirement.key not in labels or labels[requirement.key] not in (requirement.values or ())
    return (requirement.key in labels) == (operator == "Exists")


def _contradict(one: Requirement, other: Requirement) -> bool:
    if one.operator == "In":
        return not any(_holds(other, {other.key: value}) for value in one.values or ())
    if other.operator == "In":
        return _contradict(other, one)
    return {one.operator, other.operator} == {"Exists", "DoesNotExist"}


def _query(requirement: Requirement) -> str:
    if requirement.operator == "Exists":
        return requirement.key
    if requirement.operator == "DoesNotExist":
        return f"!{requirement.key}"
    word = "in" if requirement.operator == "In" else "notin"
    return f"{requirement.key} {word} ({','.join(requirement.values or ())})"
