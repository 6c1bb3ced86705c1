import pytest

from cotenant.kernel.cgroup.classes import Label
from cotenant.model.pod import QOS_LABEL, Container, KubeQos, Pod
from cotenant.model.policy import HostApplication
from cotenant.model.sample import CgroupClass
from cotenant.model.snapshot import ContainerGroup, PodGroup
from cotenant.node import labels


def make(namespace: str = "shop", qos: str | None = None, kube_qos: KubeQos = "Burstable") -> Pod:
    marked = {} if qos is None else {QOS_LABEL: qos}
    return Pod(namespace=namespace, name="p", uid="u", kube_qos=kube_qos, labels=marked)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make(qos="LS"), "online"),
        (make(qos="LSE"), "online"),
        (make(qos="BE"), "offline"),
        (make(qos="SYSTEM"), "system"),
        (make(), "online"),
        (make(kube_qos="BestEffort"), "offline"),
        (make("kube-system", kube_qos="BestEffort"), "system"),
        (make("kube-system", qos="BE"), "offline"),
    ],
)
def test_class_of(pod: Pod, expected: CgroupClass) -> None:
    assert labels.class_of(pod) == expected


def test_groups_of_pods_and_containers_are_named_and_unlisted_ones_left_to_their_parent() -> None:
    listed = ContainerGroup("k/podu/c1", Container(name="main"))
    sandbox = ContainerGroup("k/podu/s1")
    groups = [PodGroup("k/podu", "Burstable", make(qos="LS"), (listed, sandbox)), PodGroup("k/podx", "Burstable")]
    assert labels.of_groups(groups) == {
        "k/podu": Label("online", "shop/p"),
        "k/podu/c1": Label("online", "shop/p/main"),
    }


def test_host_applications_have_their_class_and_name() -> None:
    applications = [HostApplication(name="nginx", qos="LS"), HostApplication(name="odd")]
    found = labels.of_applications({"host/nginx": "nginx", "host/odd": "odd"}, applications)
    assert found == {"host/nginx": Label("online", "nginx"), "host/odd": Label(None, "odd")}
