"""Where the policy's host applications have their groups."""

from cotenant.model.pod import KubeQos
from cotenant.model.policy import HostApplication
from cotenant.model.snapshot import Snapshot

_BASES: dict[str, KubeQos] = {
    "Kubepods": "Guaranteed",
    "KubepodsBurstable": "Burstable",
    "KubepodsBesteffort": "BestEffort",
}


def group_of(snapshot: Snapshot, application: HostApplication) -> str | None:
    """Return the group of a host application, or None where it has none of its own.

    Without a path, or with one that is a QoS directory, there is no group that is the application's alone. A path
    that climbs out of its base with ``..`` is none.
    """
    place = application.cgroup_path
    if place is None:
        return None
    if place.base in _BASES:
        base = snapshot.qos_paths.get(_BASES[place.base])
    else:
        base = "" if place.base in ("", "CgroupRoot") else None
    parts = [part for part in f"{place.parent_dir}/{place.relative_path}".split("/") if part]
    if base is None or not parts or ".." in parts:
        return None
    group = "/".join([*filter(None, [base]), *parts])
    return None if group in snapshot.qos_paths.values() else group
