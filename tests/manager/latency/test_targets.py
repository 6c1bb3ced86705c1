from typing import Any

import msgspec
import pytest

from cotenant.api.exposition import Selector
from cotenant.manager.latency import targets
from cotenant.manager.latency.targets import PODS_LIMIT, SERVICES_LIMIT, PodObject, ServiceObject, Target

METRIC = {"cotenant.io/latency-metric": 'http_seconds{path="/"}', "prometheus.io/port": "8080"}


def pod(
    name: str = "shop-7d9f-x1",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    node: str = "n1",
) -> PodObject:
    value = {
        "metadata": {
            "name": name,
            "namespace": "web",
            "uid": f"uid-{name}",
            "annotations": METRIC if annotations is None else annotations,
            "labels": labels or {"pod-template-hash": "7d9f"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "shop-7d9f"}],
        },
        "spec": {"nodeName": node, "containers": []},
        "status": status or {"phase": "Running", "podIP": "10.0.0.5"},
    }
    return msgspec.convert(value, PodObject)


def service(**annotations: str) -> ServiceObject:
    said = {name.replace("__", "/").replace("_", "-"): text for name, text in annotations.items()}
    value = {
        "metadata": {"name": "front", "namespace": "web", "annotations": said},
        "spec": {"selector": {"b": "2", "app": "shop"}},
    }
    return msgspec.convert(value, ServiceObject)


def test_an_annotated_pod_is_a_target_of_its_owner() -> None:
    assert targets.of_pod(pod()) == Target(
        "web/shop", "uid-shop-7d9f-x1", "n1", "http://10.0.0.5:8080/metrics", Selector("http_seconds", (("path", "/"),))
    )


@pytest.mark.parametrize(
    ("annotations", "labels", "expected"),
    [
        ({"cotenant.io/latency-service": "pay"}, {"app": "shop"}, "web/pay"),
        ({}, {"app.kubernetes.io/name": "front", "app": "shop"}, "web/front"),
        ({}, {"app": "shop"}, "web/shop"),
        ({}, {"pod-template-hash": "7d9f"}, "web/shop"),
    ],
)
def test_what_a_pods_service_is_called(annotations: dict[str, str], labels: dict[str, str], expected: str) -> None:
    found = targets.of_pod(pod(annotations={**METRIC, **annotations}, labels=labels))
    assert isinstance(found, Target)
    assert found.service == expected


def test_our_annotations_come_before_the_usual_ones_and_ipv6_is_bracketed() -> None:
    said = {**METRIC, "cotenant.io/latency-port": "9090", "cotenant.io/latency-path": "/m", "prometheus.io/path": "/x"}
    found = targets.of_pod(pod(annotations=said, status={"phase": "Running", "podIP": "fd00::5"}))
    assert isinstance(found, Target)
    assert found.url == "http://[fd00::5]:9090/m"


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"cotenant.io/latency-metric": "x{"}, "write METRIC"),
        ({"cotenant.io/latency-metric": "x"}, "is no port"),
        ({"cotenant.io/latency-metric": "x", "prometheus.io/port": "0"}, "is no port"),
        ({"cotenant.io/latency-metric": "x", "prometheus.io/port": "80@evil"}, "is no port"),
        ({"cotenant.io/latency-metric": "x", "prometheus.io/port": "80", "prometheus.io/path": "@evil/"}, "is no path"),
        ({"cotenant.io/latency-metric": "x", "prometheus.io/port": "80", "prometheus.io/path": "/a b"}, "is no path"),
    ],
)
def test_what_is_wrong_is_told(annotations: dict[str, str], said: str) -> None:
    found = targets.of_pod(pod(annotations=annotations))
    assert isinstance(found, str)
    assert said in found


def test_a_pod_that_does_not_run_is_no_target() -> None:
    for status in (
        {"phase": "Pending", "podIP": "10.0.0.5"},
        {"phase": "Running"},
        {"phase": "Succeeded", "podIP": "1"},
    ):
        assert targets.of_pod(pod(status=status)) is None


def test_a_services_annotation_speaks_for_its_pods_but_a_pod_may_differ() -> None:
    front = service(cotenant_io__latency_metric="s")
    front.metadata.annotations.update({"cotenant.io/latency-metric": "s", "cotenant.io/latency-port": "80"})  # type: ignore[union-attr]
    assert front.annotated
    assert front.selector == "app=shop,b=2"
    found = targets.of_service(front, pod(annotations={"cotenant.io/latency-port": "81"}))
    assert isinstance(found, Target)
    assert (found.service, found.url, found.metric.metric) == ("web/front", "http://10.0.0.5:81/metrics", "s")


def test_a_service_is_sampled_over_all_its_nodes_and_the_choice_stays() -> None:
    every = [Target("web/shop", f"u{n}", f"node{n % 30}", f"http://10.0.0.{n}/", Selector("x")) for n in range(300)]
    chosen = targets.choose(every)
    assert len(chosen) == PODS_LIMIT
    assert len({target.node for target in chosen}) == PODS_LIMIT
    assert targets.choose(reversed(every)) == chosen
    fewer = targets.choose(target for target in every if target.uid != chosen[0].uid)
    assert len(set(fewer) & set(chosen)) >= PODS_LIMIT - 2
    few = [Target("web/shop", f"u{n}", "n1", "http://x/", Selector("x")) for n in range(5)]
    assert sorted(targets.choose(few), key=lambda one: one.uid) == few


def test_services_are_bounded() -> None:
    every = [Target(f"web/s{n:03}", f"u{n}", "n1", "http://x/", Selector("x")) for n in range(SERVICES_LIMIT + 9)]
    assert len(targets.choose(every)) == SERVICES_LIMIT
