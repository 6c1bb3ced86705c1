"""Groups on a host that systemd runs: systemd makes them, as scopes, since the top of the tree is its own.

A scope keeps its group while the unit lives, and systemd removes it when the last process has ended.
"""

import os
import shutil
import subprocess
import time

from cotenant.kernel import paths, tasks
from cotenant.local import errors

BUS = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
WAIT_SECONDS = 5.0
POLL_SECONDS = 0.02


def available(root: paths.Root) -> bool:
    """Return whether systemd runs this machine and can be asked for scopes."""
    return root.is_machine and (root.directory / "run/systemd/system").is_dir() and shutil.which("busctl") is not None


def slice_of(qos: str) -> str:
    """Return the slice of a class: at the top of the tree, since a dash would nest it."""
    return f"cotenant{qos.lower()}.slice"


def create(root: paths.Root, name: str, qos: str, pid: int) -> str:
    """Make a scope around a process; return its group's path below the root of the hierarchies.

    :raises GroupError: if systemd refuses, or does not do it in time.
    """
    unit = f"cotenant-{name}.scope"
    # Delegated: otherwise systemd leaves a controller out of the unit whenever nobody else needs it.
    properties = {
        "PIDs": ("au", "1", str(pid)),
        "Slice": ("s", slice_of(qos)),
        "Delegate": ("b", "true"),
        "CollectMode": ("s", "inactive-or-failed"),
        "Description": ("s", f"cotenant run {name}"),
    }
    words = [word for key, value in properties.items() for word in (key, *value)]
    call = ["busctl", "call", "--quiet", *BUS, "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail"]
    call += [str(len(properties)), *words, "0"]
    try:
        subprocess.run(call, check=True, capture_output=True, text=True, timeout=WAIT_SECONDS)
    except subprocess.CalledProcessError as error:
        raise errors.GroupError(f"{unit}: systemd refuses: {error.stderr.strip()}") from None
    except subprocess.TimeoutExpired:
        raise errors.GroupError(f"{unit}: systemd does not answer") from None
    return _await(root, unit, pid)


def _await(root: paths.Root, unit: str, pid: int) -> str:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for mount in root.cgroup_mounts():
            group = tasks.group_of(root, str(pid), root.relative(mount.path))
            if group is not None and group.endswith("/" + unit):
                return os.path.relpath(root.directory / group, mount.path)
        time.sleep(POLL_SECONDS)
    raise errors.GroupError(f"{unit}: systemd has not moved process {pid} into it within {WAIT_SECONDS:g} s")
