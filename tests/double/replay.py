"""Replay the trials of ``cotenant.kernel.semantics`` on anything that looks like cgroup files."""

import errno
from collections.abc import Iterable
from typing import Protocol

from cotenant.kernel import semantics


class Files(Protocol):
    """The four calls that a trial needs; each raises OSError as the system call would."""

    def read(self, path: str) -> str: ...
    def write(self, path: str, text: str) -> None: ...
    def mkdir(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...


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
                deviations.append(f"step {number} {step.act} {step.group}/{step.file or ''} {step.text!r}: {said}")
    finally:
        for path in reversed(made):
            files.rmdir(path)
    return deviations


def _step(step: semantics.Step, files: Files, directory: str, made: list[str]) -> str | None:
    path = f"{directory}/{step.file}"
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
        name = errno.errorcode[error.errno or 0]
        return None if name in (step.errno or ()) else f"{name}, expected {step.errno or 'success'}"
    if step.errno:
        return f"taken, expected {step.errno}"
    if step.reads is None:
        return None
    text = files.read(path).removesuffix("\n")
    return None if text in step.reads else f"reads {text!r}, expected {step.reads}"


def applicable(vendor: str, version: int) -> Iterable[semantics.Trial]:
    """Return the trials of one family."""
    return [t for t in semantics.TRIALS if vendor in t.flavours and t.version == version]
