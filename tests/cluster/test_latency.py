"""The manager reads real pods' pages of metrics, found by their own annotation and by a Service's."""

import json
import pathlib
import urllib.request
from collections.abc import Iterator
from typing import Any

import objects
import programs
import pytest
from objects import PODS, wait_for

import cluster

LISTEN = "127.0.0.1:18091"
SERVICES = "/api/v1/namespaces/default/services"
SAY = 'printf \'s_bucket{le="0.1"} %d\\ns_bucket{le="1"} %d\\ns_bucket{le="+Inf"} %d\\n\' $n $n $n'


def shop(name: str, port: int, annotations: dict[str, str]) -> dict[str, Any]:
    """Return a pod that serves a histogram which grows by 500 fast requests a second."""
    command = (
        f"mkdir -p /www; busybox httpd -p {port} -h /www; n=0; "
        f"while :; do n=$((n + 500)); {SAY} > /www/new; mv /www/new /www/metrics; sleep 1; done"
    )
    body = objects.pod(name, "real", command=command, labels={"app": name})
    body["metadata"]["annotations"] = {"cotenant.io/latency-port": str(port), **annotations}
    return body


@pytest.fixture
def shops(kubeconfig: pathlib.Path) -> Iterator[None]:
    """A pod that says what is to be read, and one whose Service says it."""
    said = {"cotenant.io/latency-metric": "s"}
    try:
        cluster.request("POST", PODS, shop("lat-own", 18555, said))
        cluster.request("POST", PODS, shop("lat-behind", 18556, {}))
        service = {
            "metadata": {"name": "lat-front", "annotations": said},
            "spec": {"selector": {"app": "lat-behind"}, "ports": [{"port": 80}]},
        }
        cluster.request("POST", SERVICES, service)
        for name in ("lat-own", "lat-behind"):
            wait_for(lambda: objects.phase(name) == "Running", 90, name)  # noqa: B023
        yield
    finally:
        for path in (f"{PODS}/lat-own", f"{PODS}/lat-behind", f"{SERVICES}/lat-front"):
            objects.delete(path)


def latency() -> dict[str, Any]:
    """Return what the manager tells, by service; nothing until it leads."""
    try:
        with urllib.request.urlopen(f"http://{LISTEN}/api/v1/latency", timeout=30) as answer:
            return {one["service"]: one for one in json.load(answer)["services"]}
    except OSError:
        return {}


def p99(service: str) -> float | None:
    quantiles = latency().get(service, {}).get("quantiles", [])
    return next((one["seconds"] for one in quantiles if one["quantile"] == 0.99), None)


def test_pods_are_read_by_their_annotation_and_by_their_services(shops: None, tmp_path: pathlib.Path) -> None:
    program = programs.Program(
        ["manager", f"--listen={LISTEN}", "--namespace=default", "--latency"], tmp_path / "manager.log"
    )
    try:
        for service in ("default/lat-own", "default/lat-front"):
            took = wait_for(lambda: p99(service) is not None, 90, program.output)  # noqa: B023
            print(f"{service}: p99 known after {took:.1f} s")
            assert p99(service) == pytest.approx(0.099, abs=0.001)
        rate = latency()["default/lat-own"]["requests_per_sec"]
        assert 0 < rate < 750  # the pod counts 500 a second, and fewer on a busy machine
        objects.delete(f"{PODS}/lat-own")
        wait_for(lambda: "default/lat-own" not in latency(), 60, "a pod that is gone to be told of no more")
    finally:
        program.stop()
