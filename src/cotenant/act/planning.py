"""All strategies together: one snapshot and one policy in, one plan out."""

import dataclasses
from collections.abc import Sequence

import msgspec

from cotenant.act import (
    batch_resources,
    block_io,
    core_sched,
    cpu_burst,
    cpu_evict,
    cpu_normalization,
    cpu_suppress,
    cpuset,
    group_identity,
    memory_evict,
    memory_qos,
    nested,
    network,
    resctrl,
    sequence,
    system,
)
from cotenant.act.draft import Draft, Plan, merge
from cotenant.act.registry import ORDER, STRATEGIES
from cotenant.model.policy import NodeSlo
from cotenant.model.snapshot import Files, HeldFiles, Snapshot

MODULES = (
    group_identity,
    cpu_suppress,
    cpuset,
    batch_resources,
    cpu_burst,
    cpu_normalization,
    memory_qos,
    cpu_evict,
    memory_evict,
    resctrl,
    block_io,
    system,
    network,
    core_sched,
)
"""Importing them is what registers them."""


def plan(snapshot: Snapshot, slo: NodeSlo, names: tuple[str, ...] = ORDER, first: Sequence[Draft] = ()) -> Plan:
    """Return what the named strategies want done to a node; nothing for what is right already.

    ``first`` are drafts of whoever keeps state from one time to the next; they own what they want.
    """
    return _merged(snapshot, [*first, *(_drafted(snapshot, slo, name) for name in names)])


class _Looked:
    """The files of a snapshot, and what was read of them."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._texts: dict[str, str | None] = {}
        self._directories: dict[str, tuple[str, ...]] = {}

    def read(self, path: str) -> str | None:
        text = self._texts[path] = self._files.read(path)
        return text

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def directories(self, path: str) -> tuple[str, ...]:
        names = self._directories[path] = self._files.directories(path)
        return names

    def rest(self) -> None:
        """Let go of the snapshot's files."""
        self._files = HeldFiles({})

    def is_same(self, files: Files) -> bool:
        """Return whether all that was read is the same in other files."""
        return all(files.read(path) == text for path, text in self._texts.items()) and all(
            files.directories(path) == names for path, names in self._directories.items()
        )


_VIEW = tuple(field for field in Snapshot.__struct_fields__ if field not in ("files", "usage"))


class Planner:
    """Plans one round after the other on a live node, and asks no strategy twice for the same.

    A strategy is a pure function: while what it saw and read stays as it was, so do its targets. Those that follow
    usage are asked each time. Which files exist is taken to be as it was: whoever keeps this begins anew now and then.
    """

    def __init__(self) -> None:
        self._view: tuple[object, ...] = ()
        self._drafts: dict[str, tuple[Draft, _Looked]] = {}

    def plan(self, snapshot: Snapshot, slo: NodeSlo, first: Sequence[Draft] = ()) -> Plan:
        """Return what :func:`plan` returns of all strategies."""
        view = (slo, *(getattr(snapshot, name) for name in _VIEW))
        if view != self._view:
            self._view, self._drafts = view, {}
        return _merged(snapshot, [*first, *(self._draft(snapshot, slo, name) for name in ORDER)])

    def _draft(self, snapshot: Snapshot, slo: NodeSlo, name: str) -> Draft:
        if STRATEGIES[name].needs_usage:
            return _drafted(snapshot, slo, name)
        known = self._drafts.get(name)
        if known is not None and known[1].is_same(snapshot.files):
            return known[0]
        looked = _Looked(snapshot.files)
        draft = _drafted(msgspec.structs.replace(snapshot, files=looked, usage=None), slo, name)
        looked.rest()
        self._drafts[name] = draft, looked
        return draft


def _drafted(snapshot: Snapshot, slo: NodeSlo, name: str) -> Draft:
    draft = Draft(snapshot, name)
    STRATEGIES[name].decide(draft, slo)
    return draft


def _merged(snapshot: Snapshot, drafts: list[Draft]) -> Plan:
    merged = merge(snapshot, drafts, nested.quotas)
    misread = tuple(f"pod {pod.key}: {problem}" for pod in snapshot.pods for problem in pod.problems)
    misread += snapshot.node.problems
    return dataclasses.replace(merged, items=sequence.ordered(snapshot, merged.items), notices=misread + merged.notices)
