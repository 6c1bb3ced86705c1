"""Which class each group belongs to, and what a class goes through."""

import dataclasses
import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.model.sample import Cgroup, CgroupClass, CgroupPsi, MissingReason, Offline, Online
from cotenant.units import errors

CLASS_OF_QOS: dict[str, CgroupClass] = {
    "LSE": "online",
    "LSR": "online",
    "LS": "online",
    "SYSTEM": "system",
    "BE": "offline",
}
_OWN = re.compile(r"cotenant-?([a-z]+)(?:\.slice)?(?:/([^/]+))?")
"""Groups of ``cotenant run``: ``cotenant-be/make``, and with systemd ``cotenantbe.slice/cotenant-make.scope``."""


class BadMatch(errors.CotenantError):
    """The text is not ``GLOB=QOS``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """Groups whose path a glob matches have this QoS. ``*`` matches slashes too."""

    glob: str
    qos: str

    @classmethod
    def parse(cls, text: str) -> "Match":
        """Return the match of ``system.slice/nginx.service=LS``.

        :raises BadMatch: if there is no ``=``, no path, or the QoS is unknown.
        """
        glob, equals, qos = text.rpartition("=")
        glob = glob.strip().strip("/")
        if not equals or not glob or qos.strip().upper() not in CLASS_OF_QOS:
            raise BadMatch(f"match {text!r}: write a group's path or glob, =, and one of {', '.join(CLASS_OF_QOS)}")
        return cls(glob, qos.strip().upper())

    @property
    def beginning(self) -> str:
        """The part of the glob before its first wildcard."""
        return re.split(r"[*?\[]", self.glob, maxsplit=1)[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """What is known of a group from outside the kernel. ``class_`` None: nothing; then its parent's is taken."""

    class_: CgroupClass | None = None
    name: str | None = None


class Classes:
    """The labels of groups: from ``cotenant run`` (by path), from outside (Kubernetes), from matches; later wins.

    A group without a label of its own has its nearest ancestor's class.
    """

    def __init__(self, matches: Sequence[Match] = ()) -> None:
        self._matches = [(re.compile(fnmatch.translate(match.glob)), match.qos) for match in matches]
        self.labels: Mapping[str, Label] = {}
        """By path; replaced as a whole by whoever knows the pods."""
        self.beginnings = tuple(match.beginning for match in matches)

    def wants(self, path: str) -> bool:
        """Return whether a group is named from outside, so that it is sampled wherever it is."""
        return path in self.labels or any(glob.match(path) for glob, _ in self._matches)

    def qos(self, path: str) -> str | None:
        """Return the QoS class that was asked for a group itself: by a match, else by ``cotenant run``; else None."""
        own = _OWN.fullmatch(path)
        found = own[1].upper() if own and own[2] and own[1].upper() in CLASS_OF_QOS else None
        for glob, qos in self._matches:
            if glob.match(path):
                found = qos
        return found

    def label(self, path: str) -> Label:
        """Return the group's own label."""
        class_, name = None, None
        own = _OWN.fullmatch(path)
        if own:
            class_ = CLASS_OF_QOS.get(own[1].upper())
        given = self.labels.get(path)
        if given:
            class_, name = given.class_ or class_, given.name or name
        for glob, qos in self._matches:
            if glob.match(path):
                class_ = CLASS_OF_QOS[qos]
        return Label(class_, name)

    def assign(self, paths: Sequence[str]) -> dict[str, Label]:
        """Return each path's label, classes inherited; parents come before their children."""
        assigned: dict[str, Label] = {}
        for path in paths:
            label = self.label(path)
            if label.class_ is None:
                parent = nearest(path, assigned)
                inherited = assigned[parent].class_ if parent is not None else self._ancestor_class(path)
                label = Label(inherited, label.name)
            assigned[path] = label
        return assigned

    def _ancestor_class(self, path: str) -> CgroupClass | None:
        """Return the class of an ancestor that is not sampled itself (``cotenant-be`` of ``cotenant-be/x``)."""
        while "/" in path:
            path = path.rpartition("/")[0]
            class_ = self.label(path).class_
            if class_ is not None:
                return class_
        return None


def nearest(path: str, groups: Mapping[str, Any]) -> str | None:
    """Return the nearest ancestor of a path among some groups."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in groups:
            return path
    return None


def cpu_sums(groups: Mapping[str, Cgroup]) -> dict[CgroupClass, float]:
    """Return the CPU ratio of each class, each second of CPU time counted once.

    A group's time holds that of the groups below it: those of its own class add nothing, those of another are taken
    off it.
    """
    sums: dict[CgroupClass, float] = {}
    for path, group in groups.items():
        if group.class_ is None or group.cpu_used_ratio is None:
            continue
        ancestor = nearest(path, groups)
        while ancestor is not None and groups[ancestor].cpu_used_ratio is None:
            ancestor = nearest(ancestor, groups)
        above = None if ancestor is None else groups[ancestor].class_
        if above == group.class_:
            continue
        sums[group.class_] = sums.get(group.class_, 0.0) + group.cpu_used_ratio
        if above is not None:
            sums[above] = sums.get(above, 0.0) - group.cpu_used_ratio
    return {class_: max(total, 0.0) for class_, total in sums.items()}


def _worst(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def aggregate(
    groups: Sequence[Cgroup], reasons: Mapping[str, MissingReason]
) -> tuple[Online, Offline, dict[str, MissingReason]]:
    """Return what the online and the offline class go through, and why what is unknown is.

    ``reasons`` are why the groups' own fields are unknown, by field.
    """
    by_path = {group.path: group for group in groups}
    sums = cpu_sums(by_path)
    online = [group for group in groups if group.class_ == "online"]
    offline = [group for group in groups if group.class_ == "offline"]
    psi = {field: _worst([getattr(g.psi, field) for g in online]) for field in CgroupPsi.__struct_fields__}
    above = {
        "run_queue_latency_p99_usec": _worst([g.run_queue_latency_p99_usec for g in online]),
        "block_p99_usec": _worst([g.block_p99_usec for g in online]),
        "throttled_ratio": _worst([g.throttled_ratio for g in online]),
        "cpu_used_ratio": sums.get("online") if online else None,
    }
    below = {
        "cpu_used_ratio": sums.get("offline") if offline else None,
        "throttled_ratio": _worst([g.throttled_ratio for g in offline]),
    }
    missing: dict[str, MissingReason] = {}
    if not online:
        missing["online"] = "no_class"
    else:
        missing.update(_why("online.psi", psi, reasons, "psi."))
        missing.update(_why("online", above, reasons))
    if not offline:
        missing["offline"] = "no_class"
    else:
        missing.update(_why("offline", below, reasons))
    return Online(psi=CgroupPsi(**psi), **above), Offline(**below), missing


def _why(
    group: str, values: Mapping[str, float | None], reasons: Mapping[str, MissingReason], prefix: str = ""
) -> dict[str, MissingReason]:
    return {
        f"{group}.{field}": reasons.get(prefix + field, "unsupported")
        for field, value in values.items()
        if value is None
    }
