"""What this node's kernel offers, in one report: ``cotenant check``. Contracts §4."""

import platform
from typing import Literal

import msgspec

from cotenant.kernel import conflicts, errors, features, paths, priority
from cotenant.kernel.priority.evidence import Evidence
from cotenant.model.priority import IDENTITIES, NAMES, InterfaceName, PriorityInterface


class UnknownFeature(errors.KernelError):
    """A name that no feature and no priority interface has."""


class RequirementMissing(errors.KernelError):
    """Something that was required is not available."""

    exit_status = 1


class Cgroup(msgspec.Struct, frozen=True):
    version: Literal["v1", "v2", "hybrid"] | None


class Interface(msgspec.Struct, frozen=True):
    """The priority interface in force, with what it would write for each identity."""

    name: InterfaceName
    levels: tuple[int, ...]
    smt_expulsion: bool | None
    sticky: bool
    reason: str
    mapping: dict[str, dict[str, str]]
    notices: tuple[str, ...]


class FeatureState(msgspec.Struct, frozen=True):
    name: str
    state: str
    reason: str
    remedy: str | None


class Report(msgspec.Struct, frozen=True):
    kernel: str | None
    arch: str | None
    cgroup: Cgroup
    priority_interface: Interface
    features: list[FeatureState]
    conflicts: list[conflicts.Conflict]


def report(root: paths.Root, interface: InterfaceName | None = None) -> Report:
    """Return the report on one root. Reads only.

    :raises OverrideUnavailable: if the interface that was asked for is not on this node.
    """
    chosen = priority.probe(root) if interface is None else priority.choose(root, interface)
    evidence = Evidence(root)
    found = features.probe_all(evidence)
    return Report(
        kernel=evidence.text(root.proc / "sys/kernel/osrelease"),
        arch=_architecture(evidence),
        cgroup=Cgroup(root.cgroup_version()),
        priority_interface=_interface(chosen),
        features=[FeatureState(name, f.state, f.reason, f.remedy) for name, f in found.items()],
        conflicts=conflicts.find(root),
    )


def _interface(chosen: PriorityInterface) -> Interface:
    return Interface(
        name=chosen.name,
        levels=chosen.levels,
        smt_expulsion=chosen.smt_expulsion,
        sticky=chosen.sticky,
        reason=chosen.reason,
        mapping={
            str(identity): {setting.file: setting.value for setting in chosen.settings[identity]}
            for identity in IDENTITIES
        },
        notices=chosen.notices,
    )


def _architecture(evidence: Evidence) -> str | None:
    """Return the machine's architecture as uname spells it, or None where a copied tree does not tell."""
    if evidence.root.is_machine:
        return platform.machine()
    listed = evidence.sysctl("kernel/arch")
    if listed:
        return listed
    text = evidence.text(evidence.root.proc / "cpuinfo") or ""
    if "CPU implementer" in text:
        return "aarch64"
    return "x86_64" if "vendor_id" in text and " lm " in f" {text} " else None


def known_names() -> list[str]:
    """Return every name that may be required."""
    return [*features.FEATURES, *NAMES]


def require(found: Report, names: list[str]) -> None:
    """Return if everything named is available.

    :raises UnknownFeature: for a name that does not exist, with one that is like it if any is.
    :raises RequirementMissing: naming what is not available, why, and what would help.
    """
    import difflib

    states = {feature.name: feature for feature in found.features}
    for name in names:
        if name not in known_names():
            near = difflib.get_close_matches(name, known_names(), n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "`cotenant check` lists them"
            raise UnknownFeature(f"--require {name}: there is no such feature; {remedy}")
    lacking = []
    for name in names:
        if name in NAMES:
            if found.priority_interface.name != name:
                lacking.append(f"{name}: this node has {found.priority_interface.name}")
        elif states[name].state != "available":
            state = states[name]
            remedy = f" (remedy: {state.remedy})" if state.remedy else ""
            lacking.append(f"{name}: {state.state}: {state.reason}{remedy}")
    if lacking:
        raise RequirementMissing(f"required and not available: {'; '.join(lacking)}")
