"""Who or what stands in the way: a second co-location agent, features that exclude each other, another scheduler.

With a second agent cotenant observes only, until it is told otherwise: two writers of the same files help nobody.
"""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from cotenant.kernel import paths
from cotenant.kernel.priority.evidence import Evidence

AGENTS = {"koordlet": "Koordinator's", "rubik": "openEuler's", "volcano-agent": "Volcano's", "vc-agent": "Volcano's"}
LOCK_FILES = {"rubik": ("run/rubik/rubik.lock", "var/run/rubik/rubik.lock")}
COMM_MAX = 15
"""The kernel cuts a task's name here."""


class Conflict(msgspec.Struct, frozen=True):
    """One conflict. ``kind`` agent: observe only; kernel: the features named must not be on together."""

    name: str
    kind: Literal["agent", "kernel"]
    reason: str
    remedy: str


def find(root: paths.Root) -> list[Conflict]:
    """Return what is in the way now. Reads only."""
    evidence = Evidence(root)
    return [*_agents(root), *_core_scheduling(evidence), *_sched_ext(evidence)]


class Agent(NamedTuple):
    """Another co-location agent that is there. ``process`` None: seen by the lock that it holds."""

    name: str
    process: int | None
    reason: str


def agents(root: paths.Root) -> tuple[Agent, ...]:
    """Return the other co-location agents, one entry each. Looks at every process."""
    found: dict[str, Agent] = {}
    for agent in (*_running(root), *_holding(root)):
        found.setdefault(agent.name, agent)
    return tuple(found.values())


def remaining(root: paths.Root, known: Iterable[Agent]) -> tuple[Agent, ...]:
    """Return those of the agents that are still there, without a look at other processes."""
    return tuple(agent for agent in known if _is_there(root, agent))


def _is_there(root: paths.Root, agent: Agent) -> bool:
    if agent.process is not None:
        return agent.name in _names(root.proc / str(agent.process))
    return any(_is_held(root, root.directory / file) for file in LOCK_FILES[agent.name])


def _agents(root: paths.Root) -> Iterator[Conflict]:
    for name, _, reason in agents(root):
        remedy = f"stop {name} on this node, or keep cotenant to observing: two agents would write the same files"
        yield Conflict(name, "agent", f"{AGENTS[name]} agent {reason}", remedy)


def _running(root: paths.Root) -> Iterator[Agent]:
    try:
        processes = sorted(int(name) for name in os.listdir(root.proc) if name.isdigit())
    except OSError:
        return
    for process in processes:
        for name in _names(root.proc / str(process)) & AGENTS.keys():
            yield Agent(name, process, f"runs as process {process}")


def _names(process: pathlib.Path) -> set[str]:
    """Return what a process calls itself, by its command line and its task name; nothing once it is gone.

    A kernel thread has no command line, and one that has ended and waits for its parent has none left: it writes no
    more, though its name is still there.
    """
    names: set[str] = set()
    with contextlib.suppress(OSError):  # gone, or not ours to read: what else is known counts
        arguments = (process / "cmdline").read_text(errors="replace").split("\0")
        if not arguments[0]:
            return names
        names.add(os.path.basename(arguments[0]))
    with contextlib.suppress(OSError):
        names.add((process / "comm").read_text(errors="replace").strip())
    return names | {name for name in AGENTS if name[:COMM_MAX] in names}


def _holding(root: paths.Root) -> Iterator[Agent]:
    """An agent in another PID namespace is seen by the lock that it holds."""
    for name, files in LOCK_FILES.items():
        for file in files:
            if _is_held(root, root.directory / file):
                yield Agent(name, None, f"holds {file}")


def _is_held(root: paths.Root, path: pathlib.Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not root.is_machine:
            return True  # a copy of the file says that it was there, not that nobody held it
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _core_scheduling(evidence: Evidence) -> Iterator[Conflict]:
    if evidence.sysctl("kernel/sched_core") != "1":
        return
    enabled = evidence.sysctl("kernel/sched_group_identity_enabled")
    always = enabled is None and evidence.find("cpu", "cpu.bvt_warp_ns") is not None
    if enabled == "1" or always:
        yield Conflict(
            "group-identity-and-core-scheduling",
            "kernel",
            "group identity and core scheduling are both on: this kernel locks up",
            "sysctl kernel.sched_core=0 or kernel.sched_group_identity_enabled=0, now",
        )


def _sched_ext(evidence: Evidence) -> Iterator[Conflict]:
    directory = evidence.root.sys / "kernel/sched_ext"
    state = evidence.text(directory / "state")
    if state in (None, "", "disabled"):
        return
    name = evidence.text(directory / "root/ops") or "unnamed"
    yield Conflict(
        "sched-ext",
        "kernel",
        f"the scheduler {name} (sched_ext, {state}) is in force and may ignore cpu.idle and weights",
        f"stop {name}, or expect only quotas and CPU sets to hold offline work back",
    )
