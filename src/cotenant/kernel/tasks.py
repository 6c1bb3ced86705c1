"""Tasks as the executor needs them: who they are, and their scheduling policy. Only for this machine's own tasks."""

import os

from cotenant.kernel import paths

POLICIES = {"other": os.SCHED_OTHER, "batch": os.SCHED_BATCH, "idle": os.SCHED_IDLE}


def start_time(root: paths.Root, task: str) -> str:
    """Return when a task started, in clock ticks since boot; empty where the tree does not say."""
    try:
        text = (root.proc / task / "stat").read_text(errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


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
