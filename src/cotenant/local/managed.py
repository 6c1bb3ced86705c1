"""Which groups ``cotenant up --enforce`` manages: those of ``cotenant run`` and those named with ``--match``.

Each is presented to the strategies as the group of a pod that carries its QoS class, so that one host and a Kubernetes
node are held by the same rules.
"""

import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.act import cgroup
from cotenant.kernel.cgroup import classes
from cotenant.kernel.snapshot import Units
from cotenant.local import groups
from cotenant.model.pod import QOS_LABEL, Container, Pod
from cotenant.model.sample import Cgroup
from cotenant.model.snapshot import PodGroup, Snapshot
from cotenant.units.limit import Limit

NAMESPACE = "host"
_OFFLINE_DIRECTORY = re.compile(r"cotenant-be|cotenantbe\.slice")


def units(cgroups: Iterable[Cgroup], matches: Sequence[classes.Match], records: Mapping[str, str]) -> Units:
    """Return the managed groups among those that were sampled. ``records`` is the class by path of started commands.

    A group below another one of the same class is part of that one.
    """
    found: dict[str, str] = {}
    known = classes.Classes(matches)
    for group in cgroups:
        qos = records.get(group.path) or known.qos(group.path)
        above = classes.nearest(group.path, found)
        if qos is not None and (above is None or found[above] != qos):
            found[group.path] = qos
    directories = {path.partition("/")[0] for path, qos in found.items() if qos == "BE" and "/" in path}
    directory = next((name for name in sorted(directories) if _OFFLINE_DIRECTORY.fullmatch(name)), None)
    return Units(tuple(_group(path, qos, directory) for path, qos in sorted(found.items())), directory)


def _group(path: str, qos: str, directory: str | None) -> PodGroup:
    pod = Pod(
        namespace=NAMESPACE,
        name=path,
        uid=path,
        kube_qos="Burstable",
        labels={QOS_LABEL: qos},
        phase="Running",
    )
    inside = directory is not None and path.startswith(f"{directory}/")
    return PodGroup(path, "BestEffort" if inside else "Burstable", pod)


def apart(found: Units) -> Units:
    """Return the groups each held by itself, not by a directory of all."""
    return Units(tuple(msgspec.structs.replace(group, qos="Burstable") for group in found.groups))


def with_own_limits(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the CPU quota that each group had before us as the limit of its pod.

    So suppression never gives a group more than its owner did, and gives that back when it ends.
    """
    found = []
    for group in snapshot.groups:
        own = _own_millicores(snapshot, group.path)
        if group.pod is not None and own is not None:
            container = Container(name="own", running=True, limits={"cpu": f"{own}m"})
            group = msgspec.structs.replace(group, pod=msgspec.structs.replace(group.pod, containers=(container,)))
        found.append(group)
    pods = tuple(group.pod for group in found if group.pod is not None)
    return msgspec.structs.replace(snapshot, groups=tuple(found), pods=pods)


def _own_millicores(snapshot: Snapshot, path: str) -> int | None:
    file = cgroup.quota_path(snapshot, path)
    if file is None:
        return None
    text = snapshot.journal.get(file) or snapshot.files.read(file) or ""
    try:
        limit = Limit.parse(text.partition(" ")[0])
    except ValueError:
        return None
    if limit.value is None:
        return None
    return max(limit.value * 1000 // cgroup.period_usec(snapshot, path), 1)


def records(run_dir: pathlib.Path) -> dict[str, str]:
    """Return the class by path of the commands that ``cotenant run`` started."""
    return {record.path: record.qos for record in groups.records_in(run_dir / "groups")}
