"""Try on scratch groups of a live node whether its kernel answers as :mod:`cotenant.kernel.semantics` says.

Only groups that are made for it, that hold no task, are ever written; they are removed again, also those that a trial
which was killed left behind.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from typing import Literal, Protocol

import msgspec

from cotenant.kernel import channel, lock, paths, priority, semantics
from cotenant.kernel.priority.evidence import Evidence
from cotenant.model.priority import InterfaceName
from cotenant.units import cpulist

PREFIX = "cotenant-verify-"
FLAVOURS: dict[InterfaceName, semantics.Flavour] = {
    "openeuler-qos-level": "openeuler",
    "openeuler-qos-level-multi": "openeuler-multi",
    "anolis-bvt": "anolis-bvt",
    "anolis-priority": "anolis-priority",
    "tencent-offline": "tencent",
    "mainline-idle": "mainline",
    "weights-only": "mainline",
}


class Files(Protocol):
    """The four calls that a trial needs; each raises OSError as the system call would."""

    def read(self, path: str) -> str: ...
    def write(self, path: str, text: str) -> None: ...
    def mkdir(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...


class ChannelFiles:
    """Those calls on a root's own files."""

    def __init__(self, root: paths.Root) -> None:
        self._channel = channel.Channel(root)

    def read(self, path: str) -> str:
        with self._channel.parent(path) as directory:
            return directory.read(os.path.basename(path))

    def write(self, path: str, text: str) -> None:
        with self._channel.parent(path) as directory:
            directory.write(os.path.basename(path), text)

    def mkdir(self, path: str) -> None:
        with self._channel.parent(path) as directory:
            directory.mkdir(os.path.basename(path))

    def rmdir(self, path: str) -> None:
        with self._channel.parent(path) as directory:
            directory.rmdir(os.path.basename(path))


def replay(trial: semantics.Trial, files: Files, group: str) -> list[str]:
    """Return the deviations of one trial in the empty group at a path; groups that it made are removed."""
    made: list[str] = []
    deviations: list[str] = []
    try:
        if trial.version == 2 and any(step.act == "mkdir" for step in trial.steps):
            files.write(f"{group}/cgroup.subtree_control", f"+{trial.controller}")
        for number, step in enumerate(trial.steps):
            directory = group if step.group == "." else f"{group}/{step.group}"
            said = _step(step, files, directory, made)
            if said:
                place = "/".join(part for part in (step.group, step.file) if part)
                deviations.append(f"step {number}: {step.act} {place} {step.text or ''!r}: {said}")
    finally:
        for path in reversed(made):
            files.rmdir(path)
    return deviations


def _step(step: semantics.Step, files: Files, directory: str, made: list[str]) -> str | None:
    path = f"{directory}/{step.file}"
    expected = " or ".join(step.errno or ()) or "success"
    try:
        if step.act == "mkdir":
            files.mkdir(directory)
            made.append(directory)
        elif step.act == "rmdir":
            files.rmdir(directory)
            made.remove(directory)
        elif step.act == "write":
            files.write(path, step.text or "")
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, str(error.errno))
        return None if name in (step.errno or ()) else f"refused with {name}, expected {expected}"
    if step.errno:
        return f"accepted, expected {expected}"
    if step.reads is None:
        return None
    try:
        text = files.read(path).removesuffix("\n")
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if text in step.reads else f"reads {text!r}, expected {' or '.join(map(repr, step.reads))}"


def applicable(flavour: semantics.Flavour, version: int) -> Iterable[semantics.Trial]:
    """Return the trials of one family and cgroup version."""
    return [trial for trial in semantics.TRIALS if flavour in trial.flavours and trial.version == version]


class Result(msgspec.Struct, frozen=True):
    """One trial on this node. ``reason`` says why it was skipped."""

    name: str
    file: str
    state: Literal["agrees", "deviates", "skipped"]
    reason: str | None = None
    deviations: list[str] = []


class Verification(msgspec.Struct, frozen=True):
    """What this kernel answered. Deviations are worth sending back with the kernel's release."""

    kernel: str | None
    flavour: semantics.Flavour
    results: list[Result]

    @property
    def agrees(self) -> bool:
        return all(result.state != "deviates" for result in self.results)


def verify(root: paths.Root) -> Verification:
    """Replay every trial of this node's family on scratch groups.

    :raises Locked: if another process is writing.
    """
    flavour = FLAVOURS[priority.probe(root).name]
    evidence = Evidence(root)
    with lock.writing(root):
        results = [
            _try(root, evidence, trial) for version in (1, 2) for trial in applicable(flavour, version)
        ]  # fmt: skip
    return Verification(evidence.text(root.proc / "sys/kernel/osrelease"), flavour, results)


def _try(root: paths.Root, evidence: Evidence, trial: semantics.Trial) -> Result:
    reason = _why_not(root, evidence, trial)
    if reason is not None:
        return Result(trial.name, trial.file, "skipped", reason)
    files = ChannelFiles(root)
    mount = root.hierarchy(trial.controller)
    assert mount is not None
    top = root.relative(mount.path)
    _remove_left_behind(root, files, top)
    group = f"{top}/{PREFIX}{os.getpid()}"
    try:
        files.mkdir(group)
    except OSError as error:
        return Result(trial.name, trial.file, "skipped", f"no group can be made in {top}: {error.strerror}")
    try:
        if not os.path.exists(root.directory / group / trial.file):
            return Result(trial.name, trial.file, "skipped", f"this kernel has no {trial.file}")
        deviations = replay(trial, files, group)
    finally:
        files.rmdir(group)
    return Result(trial.name, trial.file, "deviates" if deviations else "agrees", None, deviations)


def _why_not(root: paths.Root, evidence: Evidence, trial: semantics.Trial) -> str | None:
    mount = root.hierarchy(trial.controller)
    if mount is None or mount.version != trial.version:
        return f"the {trial.controller} controller is not on v{trial.version} here"
    if trial.version == 2:
        given = evidence.words(mount.path / "cgroup.subtree_control")
        if trial.controller not in given:
            return f"the root gives its children no {trial.controller} controller (cgroup.subtree_control)"
    if trial.file == "cpu.bvt_warp_ns" and evidence.sysctl("kernel/sched_group_identity_enabled") == "0":
        return "kernel.sched_group_identity_enabled is 0"
    online = cpulist.parse(evidence.text(root.sys / "devices/system/cpu/online") or "0")
    if trial.cpus and not set(range(trial.cpus)) <= online:
        return f"needs CPUs 0-{trial.cpus - 1}"
    return None


def _remove_left_behind(root: paths.Root, files: Files, top: str) -> None:
    """Remove the scratch groups of trials whose process is gone."""
    for name in sorted(os.listdir(root.directory / top)):
        process = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and process.isdigit() and not (root.proc / process).exists():
            for path in _deepest_first(root, f"{top}/{name}"):
                files.rmdir(path)


def _deepest_first(root: paths.Root, group: str) -> Iterator[str]:
    for directory, _, _ in sorted(os.walk(root.directory / group), key=lambda row: -row[0].count("/")):
        yield root.relative(directory)
