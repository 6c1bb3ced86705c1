"""Profiles made ready: their selectors parsed, their numbers checked. One that is not good matches nothing."""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping

from cotenant.api import selector
from cotenant.api.koordinator.names import SKIP_UPDATE_RESOURCES_ANNOTATION
from cotenant.api.koordinator.profile import Profile, ProfileSpec
from cotenant.manager.webhook import merging
from cotenant.model import pod as pods
from cotenant.units.errors import CotenantError

_PERCENT = re.compile(r"([0-9]{1,3})%")
_DRAW_BITS = 64


class BadProfile(CotenantError):
    """A profile that cannot be applied as it is."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """A profile whose every field was found to be good."""

    name: str
    namespace_selector: selector.Selector
    selector: selector.Selector
    percent: int
    """Of the pods that the selectors choose, how many get it."""
    keeps_resources: bool
    """Its pods' cpu and memory are not translated."""
    spec: ProfileSpec

    def selects(self, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether the selectors choose a pod."""
        return self.namespace_selector.matches(namespace_labels) and self.selector.matches(labels)

    def draws(self, identity: str) -> bool:
        """Return whether a chosen pod is among the percentage: the same for the same pod every time."""
        if self.percent in (0, 100):
            return self.percent == 100
        digest = hashlib.blake2b(f"{self.name}\0{identity}".encode(), digest_size=_DRAW_BITS // 8).digest()
        return int.from_bytes(digest, "big") * 100 < self.percent << _DRAW_BITS


def ready(profile: Profile) -> Ready:
    """Return a profile that can be asked.

    :raises BadProfile: with everything that is wrong with it.
    """
    spec = profile.spec
    problems: list[str] = []
    selectors = {}
    for place, given in (("namespaceSelector", spec.namespace_selector), ("selector", spec.selector)):
        try:
            selectors[place] = selector.compiled(given, f"spec.{place}")
        except selector.BadSelector as error:
            problems.append(str(error))
    percent = _percent(spec.probability, problems)
    _check_class(spec, problems)
    _check_keys(spec, problems)
    if spec.patch is not None:
        problems += merging.problems(spec.patch)
    if problems:
        raise BadProfile(problems)
    keeps = (profile.metadata.annotations or {}).get(SKIP_UPDATE_RESOURCES_ANNOTATION, "false") != "false"
    return Ready(profile.metadata.name, selectors["namespaceSelector"], selectors["selector"], percent, keeps, spec)


def _percent(probability: int | str | None, problems: list[str]) -> int:
    """Return the percentage; without a probability it is 100."""
    value = 100 if probability is None else probability
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value)
        value = int(match[1]) if match else -1
    if not 0 <= value <= 100:
        problems.append(
            f"spec.probability: {probability!r}: give a whole number of percent from 0 to 100, like 30 or 30%"
        )
        return 0
    return value


def _check_class(spec: ProfileSpec, problems: list[str]) -> None:
    if spec.qos_class and pods.qos_class(spec.qos_class) is None:
        problems.append(f"spec.qosClass: {spec.qos_class!r}: give LSE, LSR, LS, BE or SYSTEM")
    if spec.koordinator_priority is not None and not 0 <= spec.koordinator_priority < 2**31:
        problems.append(
            f"spec.koordinatorPriority: {spec.koordinator_priority}: must be from 0 to {2**31 - 1}:"
            " it becomes the value of a label, which cannot start with a sign"
        )
    for place, name in (("priorityClassName", spec.priority_class_name), ("schedulerName", spec.scheduler_name)):
        if name and (selector.name_problem(name.replace(".", "-")) or name != name.lower() or "/" in name):
            problems.append(f"spec.{place}: {name[:80]!r}: not the name of an object")


def _check_keys(spec: ProfileSpec, problems: list[str]) -> None:
    def check(place: str, values: Mapping[str, str] | None, value_problem: Callable[[str], str | None]) -> None:
        for key, value in (values or {}).items():
            problem = selector.name_problem(key) or value_problem(value)
            if problem:
                problems.append(f"spec.{place}: {problem}")

    check("labels", spec.labels, selector.value_problem)
    check("annotations", spec.annotations, lambda value: None)
    check("labelKeysMapping", spec.label_keys_mapping, selector.name_problem)
    check("annotationKeysMapping", spec.annotation_keys_mapping, selector.name_problem)
    # A suffix may start with what a whole value may not: it comes after at least a letter.
    check("labelSuffixes", spec.label_suffixes, lambda value: selector.value_problem(f"a{value}"))
