"""The registry of features: a row each, and the function that looks for it."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Literal

from cotenant.kernel.priority.evidence import Evidence

State = Literal["available", "missing", "disabled", "unknown"]
Area = Literal["observe", "cgroup", "limit", "schedule", "vendor"]
AREAS: dict[Area, str] = {
    "observe": "What can be seen",
    "cgroup": "Control groups",
    "limit": "What can be limited",
    "schedule": "Scheduling and sibling threads",
    "vendor": "What vendors add",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What was found. ``remedy``: a boot parameter, sysctl, mount or package; None where it is there or cannot be had.

    ``disabled``: the kernel has it and it is off. ``unknown``: this cannot be told from here.
    """

    state: State
    reason: str
    remedy: str | None = None


Probe = Callable[[Evidence], Finding]


@dataclasses.dataclass(frozen=True, slots=True)
class Feature:
    """One feature by the name that ``cotenant check`` uses."""

    name: str
    area: Area
    what: str
    without: str
    """What cotenant does where it is missing."""
    probe: Probe


FEATURES: dict[str, Feature] = {}


def feature(name: str, area: Area, what: str, without: str) -> Callable[[Probe], Probe]:
    """Register the function that looks for a feature."""

    def register(probe: Probe) -> Probe:
        FEATURES[name] = Feature(name, area, what, without, probe)
        return probe

    return register


def probe_all(evidence: Evidence) -> dict[str, Finding]:
    """Return what was found for every feature, in the order of the page. Reads only."""
    order = list(AREAS)
    return {
        feature.name: feature.probe(evidence)
        for feature in sorted(FEATURES.values(), key=lambda feature: order.index(feature.area))
    }


def readable(path: pathlib.Path) -> OSError | None:
    """Return None if a file can be read, else what reading it answers."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        return error
    return None
