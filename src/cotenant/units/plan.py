"""A plan: what to do to the kernel, in which order, why, and whether it can be undone.

Strategies make plans; only the executor carries them out.
"""

from typing import Literal

import msgspec

Op = Literal["write", "mkdir", "rmdir", "move_task", "set_policy", "core_cookie", "evict"]


class PlanItem(msgspec.Struct, frozen=True, kw_only=True):
    """One step. ``path`` is relative to the root, without a leading slash (``sys/fs/cgroup/cpu/a/cpu.shares``).

    ``write``: path, old and new content without the final newline (old None = not readable). ``mkdir``/``rmdir``: path.
    ``move_task``: path is the ``tasks``/``cgroup.procs`` file, old the group the task was in, new the id.
    ``set_policy``: path ``proc/<pid>``, old and new a policy name (``other``, ``idle``). ``core_cookie``: path
    ``proc/<pid>``, new the group's name, empty for none. ``evict``: path None, new ``namespace/name``.
    """

    op: Op
    path: str | None = None
    old: str | None = None
    new: str | None = None
    strategy: str
    reason: str
    irreversible: bool = False
