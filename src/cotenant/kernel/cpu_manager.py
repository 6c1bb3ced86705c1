"""What the kubelet's CPU manager has given out: its own checkpoint, ``cpu_manager_state`` in the kubelet's directory.

It is there when the kubelet's port is not, and tells which containers have CPUs for themselves under policy static.
"""

import os
import pathlib
from collections.abc import Mapping

import msgspec

from cotenant.kernel import errors, paths
from cotenant.kernel.file import File
from cotenant.units import cpulist
from cotenant.units.malformed import MALFORMED

STATE = "cpu_manager_state"
KUBELET_DIRECTORY = pathlib.PurePosixPath("/var/lib/kubelet")


class CpuManagerState(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's policy, and the CPUs of containers that it pinned, by the uid of their pod."""

    policy: str = ""
    pinned: Mapping[str, frozenset[int]] = {}


class _State(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    entries: dict[str, dict[str, str]] | None = None


def read(root: paths.Root, directory: str | os.PathLike[str] = KUBELET_DIRECTORY) -> CpuManagerState | None:
    """Return the state, or None where there is none that can be read: then the kubelet is not known to pin anything.

    :raises MalformedFile: if it is there and is no such checkpoint.
    """
    file = File(root.directory / str(directory).lstrip("/") / STATE)
    try:
        data = file.read()
    except errors.FileError:
        return None
    finally:
        file.close()
    if not data.strip():
        return None
    try:
        found = msgspec.json.decode(data, type=_State)
        pinned = {
            uid: frozenset().union(*(cpulist.parse(cpus) for cpus in containers.values()))
            for uid, containers in (found.entries or {}).items()
        }
    except (*MALFORMED, cpulist.BadCpuList) as error:
        raise errors.MalformedFile(file.path, str(error)) from None
    return CpuManagerState(policy=found.policy_name, pinned={uid: cpus for uid, cpus in pinned.items() if cpus})
