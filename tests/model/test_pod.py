import json
from typing import Any

import msgspec
import pytest

from cotenant.model import pod, pod_list


def one(**changes: Any) -> pod.Pod:
    metadata = {"name": "p", "namespace": "ns", "uid": "u1", **changes.pop("metadata", {})}
    listed = {"items": [{"metadata": metadata, "spec": {"containers": [], **changes.pop("spec", {})}, **changes}]}
    return pod_list.decode(msgspec.json.encode(listed))[0]


@pytest.mark.parametrize(
    ("priority", "band"),
    [
        (2999, None), (3000, "free"), (3999, "free"), (4000, None), (4999, None), (5000, "batch"), (5999, "batch"),
        (6000, None), (6999, None), (7000, "mid"), (7999, "mid"), (8000, None), (8999, None), (9000, "prod"),
        (9999, "prod"), (10000, None), (2_000_000_000, None), (None, None),
    ],
)  # fmt: skip
def test_priority_bands_are_closed_ranges(priority: int | None, band: str | None) -> None:
    assert pod.band_of(priority) == band


@pytest.mark.parametrize(
    ("labels", "priority", "band"),
    [
        ({"koordinator.sh/priority-class": "koord-mid"}, 9500, "mid"),
        ({"koordinator.sh/priority-class": "unknown"}, 9500, None),
        ({"koordinator.sh/qosClass": "BE"}, None, "batch"),
        ({"koordinator.sh/qosClass": "LSE"}, 4000, "prod"),
        ({}, None, "batch"),  # without requests the kubelet's BestEffort, so BE
    ],
)
def test_band_follows_label_then_priority_then_class(
    labels: dict[str, str], priority: int | None, band: str | None
) -> None:
    assert one(metadata={"labels": labels}, spec={"priority": priority}).band == band


def test_classes_have_a_default_and_a_raw_form() -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}
    guaranteed = one(spec={"containers": [{"name": "a", "resources": resources}]})
    assert (guaranteed.kube_qos, guaranteed.qos, guaranteed.qos_label) == ("Guaranteed", "LSR", None)
    burstable = one(spec={"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]})
    assert (burstable.kube_qos, burstable.qos) == ("Burstable", "LS")
    odd = one(metadata={"labels": {"koordinator.sh/qosClass": "XX"}})
    assert (odd.kube_qos, odd.qos, odd.best_effort) == ("BestEffort", "BE", True)
    stated = one(status={"qosClass": "Burstable"})
    assert stated.kube_qos == "Burstable"


def test_extended_resources_do_not_change_the_kubelets_class() -> None:
    batch = {"limits": {"kubernetes.io/batch-cpu": "500"}, "requests": {"kubernetes.io/batch-cpu": 500}}
    found = one(spec={"containers": [{"name": "a", "resources": batch}]})
    assert (found.kube_qos, found.has_extended_spec, found.batch_request_millicores()) == ("BestEffort", True, 500)


def test_sidecars_count_and_plain_init_containers_do_not() -> None:
    wanted = {"side": "300", "main": "700"}
    asked = {name: {"requests": {"kubernetes.io/batch-cpu": value}} for name, value in wanted.items()}
    spec = msgspec.json.encode({"containers": asked}).decode()
    found = one(
        metadata={"annotations": {pod.EXTENDED_RESOURCE_SPEC_ANNOTATION: spec}},
        spec={
            "containers": [{"name": "main"}],
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "setup"}],
        },
        status={
            "initContainerStatuses": [{"name": "side", "containerID": "containerd://abc", "state": {"running": {}}}]
        },
    )
    assert [(c.name, c.sidecar, c.container_id, c.running) for c in found.containers] == [
        ("side", True, "abc", True),
        ("main", False, None, False),
    ]
    assert found.batch_request_millicores() == 1000


def test_a_mirror_pod_has_the_cgroup_of_its_manifest() -> None:
    assert one(metadata={"annotations": {"kubernetes.io/config.mirror": "hash"}}).uid == "hash"


def test_a_malformed_annotation_counts_as_absent_and_is_named() -> None:
    found = one(metadata={"annotations": {pod.CPU_QOS_ANNOTATION: "{", pod.CPU_BURST_ANNOTATION: "[]"}})
    assert found.cpu_qos == {}
    assert len(found.problems) == 2


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_an_annotation_that_no_decoder_takes_costs_itself_alone(text: str) -> None:
    names = (pod.CPU_QOS_ANNOTATION, pod.BLKIO_QOS_ANNOTATION, pod.EXTENDED_RESOURCE_SPEC_ANNOTATION)
    found = one(metadata={"annotations": dict.fromkeys(names, text)})
    assert (found.cpu_qos, found.blkio_qos, len(found.problems)) == ({}, {}, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("kubernetes.io/batch-cpu", "one"), ("kubernetes.io/batch-cpu", "-1"), ("cpu", "64"), ("memory", "1Ti")],
)
def test_the_annotation_of_extended_resources_changes_nothing_else(name: str, value: str) -> None:
    text = json.dumps({"containers": {"a": {"requests": {name: value, "kubernetes.io/batch-memory": "1Gi"}}}})
    found = one(
        metadata={"annotations": {pod.EXTENDED_RESOURCE_SPEC_ANNOTATION: text}},
        spec={"containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}]},
    )
    wanted = {"cpu": "1", "memory": "1Mi", "kubernetes.io/batch-memory": "1Gi"}
    assert found.containers[0].requests == wanted
    assert len(found.problems) == 1
    assert name in found.problems[0]


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), ("-3", -3), ("+7", 7), ("2147483647", 2**31 - 1), ("2147483648", 0), ("1_0", 0), (" 5", 0), ("٣", 0),
     ("5.0", 0), ("", 0)],
)  # fmt: skip
def test_priorities_are_read_as_go_reads_them(text: str, number: int) -> None:
    marks = {"labels": {"koordinator.sh/priority": text}, "annotations": {"koordinator.sh/eviction-priority": text}}
    value = {"items": [{"metadata": {"name": "a", "uid": "u", **marks}}]}
    (pod,) = pod_list.decode(json.dumps(value))
    assert (pod.sub_priority, pod.eviction_priority) == (number, number)


def test_eviction_policy_that_is_not_json_means_not_evictable() -> None:
    policy = pod.EVICTION_POLICY_ANNOTATION
    assert one().eviction_allowed("BECPUEvict")
    assert not one(metadata={"annotations": {policy: "oops"}}).eviction_allowed("BECPUEvict")
    assert one(metadata={"annotations": {policy: '["BECPUEvict"]'}}).eviction_allowed("BECPUEvict")


def test_resource_status() -> None:
    text = '{"cpuset":"0-3","numaNodeResources":[{"node":1,"resources":{}}]}'
    status = one(metadata={"annotations": {pod.RESOURCE_STATUS_ANNOTATION: text}}).resource_status
    assert status == pod.ResourceStatus(cpuset="0-3", numa_nodes=(1,))


@pytest.mark.parametrize("text", ["", "{}", '{"items":[{"metadata":{}}]}', '{"items":7}'])
def test_what_is_no_list_of_pods_is_refused(text: str) -> None:
    with pytest.raises(pod_list.BadPods, match="PodList"):
        pod_list.decode(text)


def test_a_quantity_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(pod_list.BadPods, match="ns/p"):
        one(spec={"containers": [{"name": "a", "resources": {"requests": {"cpu": "one"}}}]})
