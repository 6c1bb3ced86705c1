"""Tasks: who they are, what they do, and their scheduling policy. Only for this machine's own tasks."""

import dataclasses
import os

from cotenant.kernel import paths

POLICIES = {"other": os.SCHED_OTHER, "batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}
RUNS = "R"
"""The state of a task that runs or waits for its turn."""
WAITS_FOR_DISK = "D"
"""The state of one whose wait signals do not end: for a disk, as a rule."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def start_time(root: paths.Root, task: str) -> str:
    """Return when a task started, in clock ticks since boot; empty where the tree does not say."""
    fields = _stat(root, task)
    return fields[19] if len(fields) > 19 else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Activity:
    """The state of a process's first thread, and the processor time that all its threads have used."""

    state: str
    processor_seconds: float


def activity(root: paths.Root, process: int) -> Activity | None:
    """Return what a process does now, or None where it is gone."""
    fields = _stat(root, str(process))
    if len(fields) < 13:
        return None
    return Activity(fields[0], (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND)


def _stat(root: paths.Root, task: str) -> list[str]:
    """Return the fields of ``/proc/TASK/stat`` from the state on; none where the tree does not say."""
    try:
        text = (root.proc / task / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the command before it may hold blanks and brackets


def group_of(root: paths.Root, task: str, beside: str) -> str | None:
    """Return the group that a task is in, relative to the root, in the hierarchy that the path ``beside`` is in.

    None where the task, or the hierarchy, cannot be told.
    """
    target = root.directory / beside
    mount = next((mount for mount in root.cgroup_mounts() if target.is_relative_to(mount.path)), None)
    if mount is None:
        return None
    try:
        lines = (root.proc / task / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if mount.controllers & set(controllers.split(",")) if mount.version == 1 else number == "0":
            inside = group.removeprefix(mount.root) if mount.root != "/" else group
            return root.relative(mount.path / inside.lstrip("/"))
    return None


def policy(task: int) -> str:
    """Return a task's policy by name, or its number where it is none of ours."""
    number = os.sched_getscheduler(task)
    return next((name for name, value in POLICIES.items() if value == number), str(number))


def set_policy(task: int, name: str) -> None:
    """Set a task's policy.

    :raises OSError: as sched_setscheduler(2) does; EINVAL for a name that is not known.
    """
    if name not in POLICIES:
        raise OSError(22, f"no policy {name!r}", str(task))
    os.sched_setscheduler(task, POLICIES[name], os.sched_param(0))
