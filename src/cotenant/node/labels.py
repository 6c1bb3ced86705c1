"""Which class and which name each pod's groups have, for the sampler."""

from collections.abc import Mapping, Sequence

from cotenant.kernel.cgroup.classes import CLASS_OF_QOS, Label
from cotenant.model.pod import Pod
from cotenant.model.policy import HostApplication
from cotenant.model.sample import CgroupClass
from cotenant.model.snapshot import PodGroup


def class_of(pod: Pod) -> CgroupClass | None:
    """Return a pod's class: what its QoS label says; without one, system for what the cluster itself needs."""
    if pod.qos_label is None and pod.system_critical:
        return "system"
    return CLASS_OF_QOS.get(pod.qos)


def of_groups(groups: Sequence[PodGroup]) -> dict[str, Label]:
    """Return the labels by group path: ``namespace/pod`` for the pod, ``namespace/pod/container`` for its containers.

    Groups whose pod is not listed have no entry, so that their parent's class is taken.
    """
    labels: dict[str, Label] = {}
    for group in groups:
        if group.pod is None:
            continue
        class_ = class_of(group.pod)
        labels[group.path] = Label(class_, group.pod.key)
        for child in group.containers:
            if child.container is not None:
                labels[child.path] = Label(class_, f"{group.pod.key}/{child.container.name}")
    return labels


def of_applications(paths: Mapping[str, str], applications: Sequence[HostApplication]) -> dict[str, Label]:
    """Return the labels of host applications, which ``paths`` names by the path of their group."""
    classes = {application.name: CLASS_OF_QOS.get(application.qos) for application in applications}
    return {path: Label(classes.get(name), name) for path, name in paths.items()}
