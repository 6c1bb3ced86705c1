"""What the tests of the webhook share: managers, profiles, namespaces, and pods that are created."""

import contextlib
import pathlib
import urllib.error
from collections.abc import Iterator
from typing import Any

import objects
import programs
import pytest
from objects import wait_for

import cluster

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NAMESPACES = "/api/v1/namespaces"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cotenant-webhook"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/cotenant-webhook"
SYSTEM = "cotenant-system"
STRICT, LOOSE, PLAIN = "colocated", "occasional", "plain"
"""Namespaces: labelled for co-location; chosen by the profile only; with nothing."""
PORTS = (19443, 19444)
LIFE_SECONDS = 8
"""Of a certificate: a machine that stands still for some seconds must not make it end before its successor is there."""
BATCH = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}


def manager(directory: pathlib.Path, port: int, *options: str) -> programs.Program:
    """Start a manager that registers its webhook; its probes are at the next port but one thousand."""
    arguments = [
        "manager", f"--listen=127.0.0.1:{port - 1000}", f"--webhook-listen=127.0.0.1:{port}", "--register-webhooks",
        "--affinity=hard", *options,
    ]  # fmt: skip
    return programs.Program(arguments, directory / f"manager-{port}.log")


def ready(port: int) -> bool:
    return programs.answers(f"http://127.0.0.1:{port - 1000}/readyz")


def registered() -> bool:
    return all(
        (objects.found(path) or {}).get("webhooks", [{}])[0].get("clientConfig", {}).get("caBundle")
        for path in (MUTATING, VALIDATING)
    )


def install_profiles() -> None:
    """Define the kind, as a cluster without Koordinator gets it."""
    done = programs.run(["crd", "install", "--koordinator", "clustercolocationprofiles"])
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: objects.found(PROFILES) is not None, 20, "profiles to be served")


def set_profile(name: str, **spec: Any) -> None:
    """Make a profile, or replace it."""
    objects.delete(f"{PROFILES}/{name}")
    body = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
            "metadata": {"name": name}, "spec": spec}  # fmt: skip
    cluster.request("POST", PROFILES, body)


@contextlib.contextmanager
def namespaces() -> Iterator[None]:
    """Have namespaces, priority classes and a profile that makes every pod of two namespaces offline work."""
    labels = {
        SYSTEM: {}, PLAIN: {}, LOOSE: {"team": "batch"}, STRICT: {"team": "batch", "cotenant.io/colocation": "enabled"},
    }  # fmt: skip
    install_profiles()
    for name, given_labels in labels.items():
        if objects.found(f"{NAMESPACES}/{name}") is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": given_labels}}
            cluster.request("POST", NAMESPACES, body)
        wait_for(lambda name=name: objects.found(f"{NAMESPACES}/{name}/serviceaccounts/default"), 30, "its account")
    for name, value in BATCH.items():
        if objects.found(f"{CLASSES}/{name}") is None:
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                    "value": value}  # fmt: skip
            cluster.request("POST", CLASSES, body)
    set_profile(
        "batch", namespaceSelector={"matchLabels": {"team": "batch"}}, qosClass="BE", priorityClassName="koord-batch",
        koordinatorPriority=1000, labelSuffixes={"app": "-offline"},
    )  # fmt: skip
    try:
        yield
    finally:
        for path in (MUTATING, VALIDATING, PROFILES):
            objects.delete(path)
        for name in (PLAIN, LOOSE, STRICT):
            objects.delete(f"{NAMESPACES}/{name}/pods")


def create(namespace: str, pod: dict[str, Any], *, dry_run: bool = True) -> dict[str, Any]:
    """Create a pod, by default without keeping it."""
    return cluster.request("POST", f"{NAMESPACES}/{namespace}/pods{'?dryRun=All' if dry_run else ''}", pod)


def refusal(namespace: str, pod: dict[str, Any]) -> str:
    """Return why a pod is not created."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        create(namespace, pod)
    return caught.value.msg


def attempt(namespace: str, pod: dict[str, Any]) -> dict[str, Any] | str:
    """Return the pod as it would be created, or why it would not."""
    try:
        return create(namespace, pod)
    except urllib.error.HTTPError as error:
        return error.msg


def asking(cpu: str = "1500m", memory: str = "100.5Mi", **labels: str) -> dict[str, Any]:
    pod = objects.pod("asking", "", {"requests": {"cpu": cpu, "memory": memory}}, labels=labels)
    pod["spec"]["hostNetwork"] = False
    return pod
