"""The webhook configurations: which requests the API server asks about, and what it does when nobody answers.

Pods of a namespace that is labelled for co-location are refused while the webhook is away; everywhere else they pass.
Updates always pass then: a Job that cannot take its finalizer off a pod would hang. The namespace of the manager itself
and kube-system are never asked about, or neither could be brought back.
"""

import base64
from collections.abc import Mapping
from typing import Any

import yaml

from cotenant.api import unstructured
from cotenant.api.koordinator import profile
from cotenant.api.koordinator.names import AMPLIFIED_LABEL, MUTATING_UPDATE_LABEL
from cotenant.manager.webhook.mutation import COLOCATION_ENABLED, COLOCATION_LABEL

Object = dict[str, Any]

MUTATE_PODS, VALIDATE_PODS = "/mutate-pods", "/validate-pods"
MUTATE_NODE_STATUS = "/mutate-node-status"
VALIDATE_PROFILES, VALIDATE_CONFIGURATION = "/validate-profiles", "/validate-configuration"
PATHS = (MUTATE_PODS, MUTATE_NODE_STATUS, VALIDATE_PODS, VALIDATE_PROFILES, VALIDATE_CONFIGURATION)
TIMEOUT_SECONDS = 5
PORT = 443
"""The Service's."""
EXEMPT = ("kube-system", "kube-node-lease")
_NAME_LABEL = "kubernetes.io/metadata.name"
_KINDS = {"mutating": "MutatingWebhookConfiguration", "validating": "ValidatingWebhookConfiguration"}


def by_service(name: str, namespace: str, path: str) -> Object:
    """Return how the API server finds a webhook that is a Service."""
    return {"service": {"name": name, "namespace": namespace, "path": path, "port": PORT}}


def by_url(url: str, path: str) -> Object:
    """Return how the API server finds a webhook by its address."""
    return {"url": f"{url}{path}"}


def mutating(name: str, namespace: str, client_configs: Mapping[str, Object]) -> Object:
    """Return the MutatingWebhookConfiguration. ``client_configs``: by path; ``namespace``: the manager's."""
    config = client_configs[MUTATE_PODS]
    update = _webhook("updates.pods.cotenant.io", config, "Ignore", [_pods("UPDATE")], _elsewhere(namespace, []))
    update["objectSelector"] = {"matchLabels": {MUTATING_UPDATE_LABEL: "true"}}
    webhooks = [*_by_namespace(config, namespace, _pods("CREATE")), update]
    for webhook in webhooks:
        # LimitRanger runs again after us and gives a translated container native resources: we must see it once more.
        webhook["reinvocationPolicy"] = "IfNeeded"
    return _configuration("mutating", name, [*webhooks, _node_status(client_configs[MUTATE_NODE_STATUS])])


def validating(name: str, namespace: str, client_configs: Mapping[str, Object], configuration_namespace: str) -> Object:
    """Return the ValidatingWebhookConfiguration. ``configuration_namespace``: where slo-controller-config is."""
    pods, everywhere = client_configs[VALIDATE_PODS], _elsewhere(namespace, [])
    profiles = {
        "apiGroups": [profile.GROUP],
        "apiVersions": [profile.VERSION],
        "resources": [profile.PLURAL],
        "operations": ["CREATE", "UPDATE"],
        "scope": "Cluster",
    }
    maps = {**_pods("CREATE", "UPDATE"), "resources": ["configmaps"]}
    # A resize in place is an update of a pod too: an LSR pod keeps whole cores through it.
    updates = {**_pods("UPDATE"), "resources": ["pods", "pods/resize"]}
    there = {"matchLabels": {_NAME_LABEL: configuration_namespace}}
    webhooks = [
        *_by_namespace(pods, namespace, _pods("CREATE")),
        _webhook("updates.pods.cotenant.io", pods, "Ignore", [updates], everywhere),
        _webhook("profiles.cotenant.io", client_configs[VALIDATE_PROFILES], "Ignore", [profiles], None),
        _webhook("configuration.cotenant.io", client_configs[VALIDATE_CONFIGURATION], "Ignore", [maps], there),
    ]
    return _configuration("validating", name, webhooks)


def trusted(configuration: Object, authorities: bytes) -> Object:
    """Return a configuration whose webhooks are trusted by these authorities."""
    bundle = base64.b64encode(authorities).decode()
    webhooks = [
        {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": bundle}}
        for webhook in configuration["webhooks"]
    ]
    return {**configuration, "webhooks": webhooks}


def trust_patch(configuration: Object, authorities: bytes) -> Object | None:
    """Return the strategic merge patch that makes a configuration, as it was read, trust these; None where it does."""
    bundle = base64.b64encode(authorities).decode()
    webhooks = [
        {"name": webhook["name"], "clientConfig": {"caBundle": bundle}}
        for webhook in configuration.get("webhooks") or ()
        if (webhook.get("clientConfig") or {}).get("caBundle") != bundle
    ]
    if not webhooks:
        return None
    version = unstructured.metadata(configuration).get("resourceVersion")
    return {"metadata": {"resourceVersion": version}, "webhooks": webhooks}


def covers(there: Any, wanted: Any) -> bool:
    """Return whether an object has all that is wanted; what the API server added does not matter."""
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(key in there and covers(there[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(there, list) and len(there) == len(wanted) and all(map(covers, there, wanted))
    return bool(there == wanted)


def _node_status(config: Object) -> Object:
    """Return the webhook of amplified nodes. Asked once only: what it multiplied would be multiplied again."""
    statuses = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["nodes/status"],
        "operations": ["UPDATE"],
        "scope": "Cluster",
    }
    webhook = _webhook("amplified.nodes.cotenant.io", config, "Ignore", [statuses], None)
    return {**webhook, "objectSelector": {"matchLabels": {AMPLIFIED_LABEL: "true"}}, "reinvocationPolicy": "Never"}


def _by_namespace(config: Object, namespace: str, rule: Object) -> list[Object]:
    labelled = {"matchLabels": {COLOCATION_LABEL: COLOCATION_ENABLED}, "matchExpressions": [_not_exempt(namespace)]}
    others = [{"key": COLOCATION_LABEL, "operator": "NotIn", "values": [COLOCATION_ENABLED]}]
    return [
        _webhook("colocation.pods.cotenant.io", config, "Fail", [rule], labelled),
        _webhook("pods.cotenant.io", config, "Ignore", [rule], _elsewhere(namespace, others)),
    ]


def _elsewhere(namespace: str, expressions: list[Object]) -> Object:
    return {"matchExpressions": [*expressions, _not_exempt(namespace)]}


def _not_exempt(namespace: str) -> Object:
    return {"key": _NAME_LABEL, "operator": "NotIn", "values": [*EXEMPT, namespace]}


def _pods(*operations: str) -> Object:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": list(operations),
        "scope": "Namespaced",
    }


def _webhook(name: str, config: Object, policy: str, rules: list[Object], namespaces: Object | None) -> Object:
    webhook = {
        "name": name,
        "clientConfig": config,
        "rules": rules,
        "failurePolicy": policy,
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    }
    return webhook if namespaces is None else {**webhook, "namespaceSelector": namespaces}


def _configuration(kind: str, name: str, webhooks: list[Object]) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": _KINDS[kind],
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "cotenant"}},
        "webhooks": webhooks,
    }


def template() -> str:
    """Return both configurations as the chart keeps them: with words in capitals in the place of its values."""
    configs = {path: by_service("SERVICE_NAME", "RELEASE_NAMESPACE", path) for path in PATHS}
    both = (
        mutating("CONFIGURATION_NAME", "RELEASE_NAMESPACE", configs),
        validating("CONFIGURATION_NAME", "RELEASE_NAMESPACE", configs, "SLO_CONFIG_NAMESPACE"),
    )
    return "---\n".join(yaml.dump(one, Dumper=_Plain, sort_keys=False, width=110) for one in both)


class _Plain(yaml.SafeDumper):
    """Writes out what is used twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
