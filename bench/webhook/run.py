"""How long the webhook takes for one pod: in the process, and over HTTPS on a connection that stays open.

Run: ``python bench/webhook/run.py [--profiles 20] [--rounds 1000] [--json]``. The row to hold: p99 at most 10 ms over
HTTPS. The pod is what a Deployment makes, with a sidecar, an init container and a service account's volume; the API
server here is a small one that only lists, so that what is measured is ours: TLS, parsing, profiles, patch.
"""

import argparse
import asyncio
import base64
import contextlib
import http.client
import json
import multiprocessing
import ssl
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Any

import uvicorn
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cotenant.kube.client import Client
from cotenant.manager import controller
from cotenant.manager.webhook import certificates, mutation, patching
from cotenant.manager.webhook.profiles import Ready
from cotenant.manager.webhook.server import WebhookServer
from cotenant.manager.webhook.settings import Settings, names
from cotenant.manager.webhook.source import Source
from cotenant.units.clock import SystemClock
from cotenant.web import serving

TARGET_MS = 10.0
NAMESPACE = "cotenant-system"


def pod(index: int) -> dict[str, Any]:
    """Return a pod as the API server hands it over."""
    resources = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    mount = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    container = {
        "image": "registry.example/team/service:1.2.3", "imagePullPolicy": "IfNotPresent", "resources": resources,
        "env": [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(20)], "volumeMounts": [mount],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "service-7c9d8f-",
            "namespace": "render",
            "uid": f"00000000-0000-4000-8000-{index:012d}",
            "labels": {"app": "service", "pod-template-hash": "7c9d8f", "team": "render"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "service-7c9d8f", "uid": "1"}],
        },
        "spec": {
            "containers": [{"name": "main", **container}, {"name": "proxy", **container}],
            "initContainers": [{"name": "prepare", **container}],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
    }


def lists(profiles: int) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of a cluster: profiles of which three apply to the pod, 500 namespaces, classes."""
    classes = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}

    def profile(index: int) -> dict[str, Any]:
        team = "render" if index < 3 else f"team-{index}"
        return {
            "metadata": {"name": f"profile-{index:03d}"},
            "spec": {
                "namespaceSelector": {"matchLabels": {"team": team}},
                "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                "qosClass": "BE",
                "priorityClassName": "koord-batch",
                "labels": {f"example.com/label-{index}": "x"},
                "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
            },
        }

    return {
        "clustercolocationprofiles": [profile(index) for index in range(profiles)],
        "namespaces": [
            {"metadata": {"name": name, "labels": {"team": name}}}
            for name in ("render", *(f"team-{index}" for index in range(500)))
        ],
        "priorityclasses": [{"metadata": {"name": name}, "value": value} for name, value in classes.items()],
    }


@contextlib.asynccontextmanager
async def api_server(objects: dict[str, list[dict[str, Any]]], secret: dict[str, Any]) -> AsyncIterator[str]:
    """Serve lists, one Secret, and watches on which nothing happens."""

    async def answer(request: Request) -> Response:
        kind = request.url.path.rpartition("/")[2]
        if request.query_params.get("watch"):
            return StreamingResponse(_nothing(), media_type="application/json")
        if "/secrets/" in request.url.path:
            return JSONResponse(secret)
        return JSONResponse({"metadata": {"resourceVersion": "1"}, "items": objects.get(kind, [])})

    with serving.bind("127.0.0.1:0") as listener:
        config = uvicorn.Config(
            Starlette(routes=[Route("/{path:path}", answer)]), log_config=None, lifespan="off",
            timeout_graceful_shutdown=0,
        )  # fmt: skip
        task = asyncio.create_task(serving.Server(config).serve(sockets=[listener]))
        try:
            yield serving.url_of(listener)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _nothing() -> AsyncIterator[bytes]:
    yield b""
    await asyncio.Event().wait()


async def serve(profiles: int, pipe: Connection) -> None:
    """Run the webhook until the pipe closes; sends its port and its authority first, its own times last."""
    with serving.bind("127.0.0.1:0") as free:
        address = "{}:{}".format(*free.getsockname()[:2])
    settings = Settings(listen=address, affinity="soft")
    material = certificates.renewed(None, names(settings, NAMESPACE), time.time(), 3600, published=True)
    assert material is not None
    keys = {"ca.crt": material.authorities, "ca.key": material.authority_key, "tls.crt": material.certificate,
            "tls.key": material.key}  # fmt: skip
    secret = {"metadata": {}, "data": {name: base64.b64encode(value).decode() for name, value in keys.items()}}
    async with api_server(lists(profiles), secret) as url:
        config = KubeConfig.from_one(cluster=Cluster(server=url, insecure=True), user=User(), namespace=NAMESPACE).get()
        assert config is not None
        async with Client(config) as client:
            context = controller.Context(
                client=client, clock=SystemClock(), namespace=NAMESPACE, settings=controller.Settings(webhook=settings)
            )
            task = asyncio.create_task(WebhookServer().run(context))
            while not task.done() and context.readiness.waiting:
                await asyncio.sleep(0.05)
            source = Source(client)
            following = asyncio.create_task(source.run())
            while source.waiting_for:
                await asyncio.sleep(0.05)
            pipe.send((address, material.authorities.decode(), await in_process(source)))
            await asyncio.to_thread(pipe.recv)
            for one in (task, following):
                one.cancel()
            await asyncio.gather(task, following, return_exceptions=True)


async def in_process(source: Source) -> list[float]:
    """Return how long profiles and patch take for one pod, in seconds."""
    around = await source.around("render")
    ready: tuple[Ready, ...] = source.ready
    times = []
    for index in range(1000):
        value = pod(index)
        started = time.perf_counter()
        outcome = mutation.mutate(mutation.Arrival(pod=value, identity=f"render/{index}"), ready, around, "soft")
        operations = patching.difference(value, outcome.pod)
        times.append(time.perf_counter() - started)
        assert operations
        assert len(outcome.applied) == 3
    return times


def over_https(address: str, authority: str, rounds: int) -> list[float]:
    """Return how long a review takes from request to answer, in seconds."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cadata=authority)
    connection = http.client.HTTPSConnection(host, int(port), timeout=10, context=context)
    times = []
    for index in range(rounds):
        request = {"uid": str(index), "operation": "CREATE", "namespace": "render", "object": pod(index)}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        body = json.dumps(review).encode()
        started = time.perf_counter()
        connection.request("POST", "/mutate-pods?timeout=5s", body, {"Content-Type": "application/json"})
        content = connection.getresponse().read()
        times.append(time.perf_counter() - started)
        assert b'"patch"' in content, content[:300]
    connection.close()
    return times


def quantiles_ms(seconds: list[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the maximum in milliseconds."""
    ordered = sorted(seconds)
    at = {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)], "max": ordered[-1]}
    return {name: round(value * 1000, 2) for name, value in at.items()}


def _process(profiles: int, pipe: Connection) -> None:
    asyncio.run(serve(profiles, pipe))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_process, args=(options.profiles, theirs), daemon=True)
    server.start()
    try:
        address, authority, times = ours.recv()
        results = {
            "process": quantiles_ms(times),
            "https": quantiles_ms(over_https(address, authority, options.rounds)),
        }
        ours.send("end")
        server.join(10)
    finally:
        server.kill()
    size = len(json.dumps(pod(0)))
    if options.json:
        print(json.dumps({"profiles": options.profiles, "pod_bytes": size, "milliseconds": results}))
        return
    print(f"one pod of {size / 1000:.1f} kB, {options.profiles} profiles of which three apply, {options.rounds} rounds")
    for place, found in results.items():
        print(f"  {place:8} p50 {found['p50']:6.2f} ms   p99 {found['p99']:6.2f} ms   max {found['max']:6.2f} ms")
    print(f"  to hold: p99 over HTTPS at most {TARGET_MS:.0f} ms")


if __name__ == "__main__":
    main()
