"""Threads of a group, and the scheduling policy of each."""

from cotenant.model.snapshot import Snapshot

_POLICY_FIELD = 41
SCHED_IDLE = "5"


def threads(snapshot: Snapshot, group: str) -> tuple[str, ...]:
    """Return the ids of the threads that are in a group itself; none when they cannot be listed."""
    file = "cgroup.threads" if snapshot.version("cpu") == 2 else "tasks"
    path = snapshot.path("cpu", group, file)
    text = None if path is None else snapshot.files.read(path)
    if text is None:
        path = snapshot.path("cpu", group, "cgroup.procs")
        text = None if path is None else snapshot.files.read(path)
    return tuple(word for word in (text or "").split() if word.isdigit())


def policy(snapshot: Snapshot, task: str) -> str | None:
    """Return the number of a thread's scheduling policy, or None when it is gone."""
    text = snapshot.files.read(f"{snapshot.proc}/{task}/stat")
    # The command may hold blanks and brackets; what follows the last bracket is field 3 and on.
    fields = (text or "").rpartition(")")[2].split()
    return fields[_POLICY_FIELD - 3] if len(fields) > _POLICY_FIELD - 3 else None


def left_idle(snapshot: Snapshot, group: str) -> tuple[str, ...]:
    """Return the threads of processes that are SCHED_IDLE as a whole.

    A process only some of whose threads are idle chose that itself.
    """
    processes: dict[str, dict[str, bool]] = {}
    for task in threads(snapshot, group):
        idle = policy(snapshot, task) == SCHED_IDLE
        processes.setdefault(_process(snapshot, task), {})[task] = idle
    return tuple(task for members in processes.values() if all(members.values()) for task in members)


def _process(snapshot: Snapshot, task: str) -> str:
    text = snapshot.files.read(f"{snapshot.proc}/{task}/status") or ""
    return next((line.split()[1] for line in text.splitlines() if line.startswith("Tgid:")), task)


def subtree(snapshot: Snapshot, group: str) -> tuple[str, ...]:
    """Return the ids of the threads in a group and in all groups below it (Kata and some runtimes nest)."""
    place = snapshot.path("cpu", group, "")
    below = snapshot.files.directories(place.rstrip("/")) if place else ()
    inner = [thread for name in below for thread in subtree(snapshot, f"{group}/{name}")]
    return (*threads(snapshot, group), *inner)
