"""All programs on this machine, in a cluster whose API server is the tests' own, scraped by a real Prometheus."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import prometheus_client
import pytest
from prometheus_client import registry
from tests.charts.test_monitoring import filled
from tests.prometheus import cluster, servers

from cotenant.detect import engine, presets
from cotenant.model import sample
from cotenant.model.ledger import Account
from cotenant.web import ledger, sample_metrics

RULES = """\
apiVersion: cotenant.io/v1alpha1
kind: DetectionRuleConfig
metadata: {{name: default}}
spec:
  detections:
    cachePollution: {{enabled: false}}
    cpuContention: {{enabled: false}}
    ioCongestion: {{enabled: false}}
    memoryPressure:
      weight: 1
      signals: [{{signal: memory.available_ratio, normal: {normal}, threshold: {threshold}, saturation: {saturation}}}]
"""
HURT = RULES.format(normal=1.0, threshold=0.9999, saturation=0.9998)
"""Rules by which any machine is hurt severely: some of its memory is in use."""
CALM = RULES.format(normal=0.0003, threshold=0.0002, saturation=0.0001)


@dataclasses.dataclass
class World:
    """What runs, and who watches it."""

    prometheus: servers.Prometheus
    pages: dict[str, str]
    """HOST:PORT of each scraped page, by job."""
    latency: str
    """The manager's ``latency.yaml``."""


class Whole(registry.Collector):
    """The page of a node of which everything is known, with one namespace and one service of a cluster."""

    def collect(self) -> Iterator[Any]:
        taken = msgspec.structs.replace(filled(sample.Sample), time="2026-11-30T00:00:00Z", missing={})
        yield from sample_metrics.of_sample(taken, taken.cgroups)
        yield from sample_metrics.of_evaluation(engine.Engine(presets.get("default")).evaluate(taken))
        yield from ledger.metrics_of({"shop": Account(starved_since=0.0)}, "namespace", 2000.0)


def whole_page() -> bytes:
    found = prometheus_client.CollectorRegistry()
    found.register(Whole())
    return bytes(prometheus_client.generate_latest(found))


class Shop:
    """A page with the histogram of a service that answers faster than 0.1 s, but for 2 % of its requests; per pod."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        seconds = prometheus_client.Histogram(
            "shop_seconds", "Requests.", ["pod", "namespace"], buckets=(0.01, 0.1, 1, 10), registry=self.registry
        )
        self._pods = [seconds.labels(pod, "shop") for pod in ("pod-fast", "pod-slow")]
        info = prometheus_client.Gauge("kube_pod_info", "Pods.", ["pod", "namespace", "node"], registry=self.registry)
        for pod, node in (("pod-fast", "n1"), ("pod-slow", "n2")):
            info.labels(pod, "shop", node).set(1)
        odd = prometheus_client.Gauge("odd", "Numbers that are none.", ["kind"], registry=self.registry)
        odd.labels("nan").set(math.nan)
        odd.labels("inf").set(math.inf)

    def text(self) -> bytes:
        """Return the page; at each look a thousand requests more."""
        fast, slow = self._pods
        for _ in range(490):
            fast.observe(0.05)
            slow.observe(0.5)
        for _ in range(10):
            fast.observe(0.5)
            slow.observe(5)
        return bytes(prometheus_client.generate_latest(self.registry))


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    """The address of the shop's page."""
    with servers.page(Shop().text, prometheus_client.CONTENT_TYPE_LATEST) as address:
        yield address


NODES = {"node": "n1", "whole": "n2", "up": "host"}
"""Which node a page is of."""


def target_labels(program: str) -> dict[str, str]:
    """Return what the Prometheus operator gives the targets of the chart's monitors."""
    found = {"namespace": cluster.NAMESPACE, "pod": f"{program}-0", "container": program, "endpoint": "metrics"}
    return found | ({"node": NODES[program]} if program in NODES else {"service": f"cotenant-{program}"})


def latency_of(prometheus: servers.Prometheus) -> str:
    """Return the manager's entry for the shop."""
    query = (
        "sum by (le, node) (rate(shop_seconds_bucket[30s])"
        " * on (namespace, pod) group_left (node) max by (namespace, pod, node) (kube_pod_info))"
    )
    return (
        "services:\n- name: shop/front\n  prometheus:\n"
        f"    url: {prometheus.url}\n    query: '{query}'\n    windowSeconds: 30\n"
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, shop: str) -> Iterator[World]:
    """Everything of ours beside one node, and a Prometheus that scrapes each second."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "rules.yaml").write_text(CALM)
    stream, extender, verdicts, agent, up, webhook = (servers.free_port() for _ in range(6))
    with contextlib.ExitStack() as ending:
        api = cluster.Cluster(folder)
        ending.callback(api.stop)
        size = {"cpu": "2", "memory": "4Gi"}
        status = {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
        api.add("api/v1/nodes", "n1", metadata={"uid": "n1", "labels": {}}, status=status)
        kubeconfig = api.kubeconfig()
        commands = {
            "up": [f"--port={up}", f"--data={folder}/up", f"--rules={folder}/rules.yaml"],
            "analyzer": [
                *(f"--listen=127.0.0.1:{stream}", "--page=127.0.0.1:0", kubeconfig),
                f"--namespace={cluster.NAMESPACE}",
            ],
            "node": [
                *("--node=n1", kubeconfig, f"--metrics=127.0.0.1:{agent}", f"--state={folder}/state"),
                *("--kubelet=http://127.0.0.1:1", f"--analyzer=127.0.0.1:{stream}", "--koordlet-metrics", "--evict"),
            ],
            "scheduler": [
                *(f"--listen=127.0.0.1:{extender}", f"--verdict-metrics=127.0.0.1:{verdicts}", kubeconfig),
                f"--analyzer-namespace={cluster.NAMESPACE}",
            ],
            "manager": [
                *("--listen=127.0.0.1:0", "--latency", kubeconfig, f"--analyzer=127.0.0.1:{stream}"),
                *(f"--webhook-listen=127.0.0.1:{webhook}", "--register-webhooks", "--overcommit=always"),
            ],
        }
        programs = {name: servers.cotenant(folder / f"{name}.log", name, *more) for name, more in commands.items()}
        for program in programs.values():
            ending.callback(program.stop)
        pages = {
            "up": f"127.0.0.1:{up}",
            "node": f"127.0.0.1:{agent}",
            "scheduler": f"127.0.0.1:{extender}",
            "verdicts": f"127.0.0.1:{verdicts}",
            "analyzer": servers.url_printed(programs["analyzer"], r"http://127\.0\.0\.1:\d+"),
            "manager": servers.url_printed(programs["manager"]),
            "whole": ending.enter_context(servers.page(whole_page, prometheus_client.CONTENT_TYPE_LATEST)),
            "shop": shop,
        }
        jobs = [servers.job(name, address, **target_labels(name)) for name, address in pages.items()]
        prometheus = servers.Prometheus(folder / "prometheus", {"scrape_configs": jobs})
        ending.callback(prometheus.stop)
        text = latency_of(prometheus)
        api.add(f"api/v1/namespaces/{cluster.NAMESPACE}/configmaps", "cotenant", data={"latency.yaml": text})
        prometheus.await_scraped(*pages)
        yield World(prometheus, pages, text)
