"""The webhook's certificates as they come and go, and the cluster while nobody answers."""

import contextlib
import itertools
import json
import pathlib
import ssl
import threading
import time
import urllib.error
from collections.abc import Iterator

import admission
import objects
import programs
import pytest
from admission import (
    LIFE_SECONDS,
    LOOSE,
    MUTATING,
    NAMESPACES,
    PORTS,
    STRICT,
    SYSTEM,
    VALIDATING,
    asking,
    create,
    manager,
    ready,
    refusal,
    registered,
)
from objects import wait_for

import cluster


@pytest.fixture(scope="module")
def namespaces(kubeconfig: pathlib.Path) -> Iterator[None]:
    with admission.namespaces():
        yield


def test_certificates_and_authority_are_replaced_and_no_request_is_lost(
    namespaces: None, tmp_path: pathlib.Path
) -> None:
    """Two replicas; each creates with a new connection, while certificates that live a few seconds come and go."""
    life = f"--webhook-certificate-lifetime={LIFE_SECONDS}s"
    objects.delete(f"{NAMESPACES}/{SYSTEM}/secrets/cotenant-webhook-tls")
    with contextlib.ExitStack() as running:
        for path in (MUTATING, VALIDATING):
            running.callback(objects.delete, path)
        running.callback(objects.delete, f"{NAMESPACES}/{SYSTEM}/secrets/cotenant-webhook-tls")
        for port in PORTS:
            one = manager(tmp_path, port, life, f"--webhook-url=https://127.0.0.1:{PORTS[0]}")
            running.callback(one.stop)
        wait_for(lambda: all(map(ready, PORTS)) and registered(), 40, "both replicas")
        failures: list[str] = []
        ending = threading.Event()
        created = [0, 0, 0]

        def keep_creating(slot: int) -> None:
            while not ending.is_set():
                try:
                    create(STRICT, asking())
                    created[slot] += 1
                except (urllib.error.URLError, OSError) as error:
                    failures.append(str(getattr(error, "msg", error)))

        workers = [threading.Thread(target=keep_creating, args=(slot,)) for slot in range(len(created))]
        for worker in workers:
            worker.start()
        seen: dict[int, set[str]] = {port: set() for port in PORTS}
        bundles = set()

        looks = [time.monotonic()]

        def all_replaced() -> bool:
            looks.append(time.monotonic())
            for port in PORTS:
                seen[port].add(ssl.get_server_certificate(("127.0.0.1", port)))
            bundles.add(cluster.request("GET", MUTATING)["webhooks"][0]["clientConfig"]["caBundle"])
            # The replicas share certificates, and a new authority is published beside the old one.
            return len(seen[PORTS[0]] & seen[PORTS[1]]) >= 4 and len(bundles) >= 2

        try:
            took = wait_for(all_replaced, LIFE_SECONDS * 11, "certificates and authority to be replaced")
        finally:
            ending.set()
            for worker in workers:
                worker.join()
    print(f"all replaced after {took:.1f} s")
    print(f"{sum(created)} pods, certificates seen: {[len(found) for found in seen.values()]}, bundles: {len(bundles)}")
    stood_still = max(later - earlier for earlier, later in itertools.pairwise(looks))
    if stood_still < LIFE_SECONDS / 3:  # a machine that stands still for longer lets the next certificate come too late
        assert not failures, (len(failures), failures[:3])
    assert sum(created) > 50


def test_without_the_webhook_only_namespaces_for_colocation_wait(namespaces: None, tmp_path: pathlib.Path) -> None:
    program = manager(tmp_path, PORTS[0])
    try:
        wait_for(lambda: ready(PORTS[0]) and registered(), 40, "the webhook")
        program.kill()
        assert create(LOOSE, asking(app="x"))["metadata"]["labels"] == {"app": "x"}
        text = refusal(STRICT, asking())
        assert "failed calling webhook" in text
        assert create("kube-system", asking())["metadata"]["name"] == "asking"
        create(LOOSE, asking(app="slipped"), dry_run=False)
        listed = json.loads(programs.run(["manager", "unmutated", "--json"]).stdout)
        assert [(one["namespace"], one["name"], one["why"]) for one in listed] == [(LOOSE, "asking", "missed")]
        objects.delete(f"{NAMESPACES}/{LOOSE}/pods/asking")
        again = manager(tmp_path, PORTS[0])
        try:
            took = wait_for(lambda: ready(PORTS[0]), 40, "the webhook again")
            print(f"a new process answers after {took:.1f} s")
            assert create(STRICT, asking())["spec"]["priorityClassName"] == "koord-batch"
        finally:
            again.stop()
    finally:
        program.stop()
        for path in (MUTATING, VALIDATING):
            objects.delete(path)
