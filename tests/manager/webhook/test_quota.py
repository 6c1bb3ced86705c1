"""Quotas and limits that stand against a translated pod, and those that do not."""

from typing import Any

import msgspec
import pytest
from tests.manager.webhook.objects import around, arrival, offline, pod

from cotenant.manager.webhook import mutation
from cotenant.manager.webhook.errors import Refused
from cotenant.manager.webhook.surroundings import LimitRange, Quota

ASKS = {"requests": {"cpu": "1", "memory": "1Gi"}}


def quota(**spec: Any) -> Quota:
    return msgspec.convert({"metadata": {"name": "team"}, "spec": spec}, Quota)


def limits(**item: Any) -> LimitRange:
    return msgspec.convert({"metadata": {"name": "bounds"}, "spec": {"limits": [item]}}, LimitRange)


def by_class(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": list(values)}]}


CPU = {"requests.cpu": "10"}


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"hard": CPU}, True),
        ({"hard": {"limits.memory": "10Gi"}}, True),
        ({"hard": {"cpu": "1"}}, True),
        ({"hard": {"pods": "10", "count/pods": "10"}}, False),
        ({"hard": {"requests.storage": "1Gi"}}, False),
        ({"hard": CPU, "scopes": ["NotBestEffort"]}, False),
        ({"hard": CPU, "scopes": ["NotTerminating"]}, True),
        ({"hard": CPU, "scopes": ["Terminating"]}, False),
        ({"hard": CPU, "scopes": ["PriorityClass"]}, True),
        ({"hard": CPU, "scopeSelector": by_class("In", "koord-batch")}, True),
        ({"hard": CPU, "scopeSelector": by_class("In", "koord-prod")}, False),
        ({"hard": CPU, "scopeSelector": by_class("NotIn", "koord-batch", "koord-mid")}, False),
        ({"hard": CPU, "scopeSelector": by_class("DoesNotExist")}, False),
        ({"hard": CPU, "scopes": ["CrossNamespacePodAffinity"]}, False),
    ],
)
def test_quotas(spec: dict[str, Any], refused: bool) -> None:
    surroundings = around(quotas=[quota(**spec)])
    if not refused:
        mutation.mutate(arrival(pod(ASKS)), [offline()], surroundings)
        return
    with pytest.raises(Refused) as caught:
        mutation.mutate(arrival(pod(ASKS)), [offline()], surroundings)
    text = str(caught.value)
    assert "ResourceQuota shop/team" in text
    assert next(iter(spec["hard"])) in text
    assert "profile batch" in text
    assert "scopeSelector" in text


def test_a_quota_on_affinity_across_namespaces() -> None:
    term = {"topologyKey": "zone", "namespaces": ["other"]}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    surroundings = around(quotas=[quota(hard=CPU, scopes=["CrossNamespacePodAffinity"])])
    with pytest.raises(Refused):
        mutation.mutate(arrival(pod(ASKS, affinity=affinity)), [offline()], surroundings)


@pytest.mark.parametrize(
    ("item", "refused"),
    [
        ({"type": "Container", "min": {"cpu": "100m"}}, True),
        ({"type": "Container", "max": {"memory": "1Gi"}}, True),
        ({"type": "Pod", "max": {"cpu": "4"}}, True),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}, True),
        ({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}, False),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, False),
        ({"type": "Container", "max": {"ephemeral-storage": "1Gi"}}, False),
    ],
)
def test_limits(item: dict[str, Any], refused: bool) -> None:
    surroundings = around(limit_ranges=[limits(**item)])
    if not refused:
        mutation.mutate(arrival(pod(ASKS)), [offline()], surroundings)
        return
    with pytest.raises(Refused, match="LimitRange shop/bounds bounds"):
        mutation.mutate(arrival(pod(ASKS)), [offline()], surroundings)


def test_only_what_the_pod_asks_for_counts() -> None:
    surroundings = around(quotas=[quota(hard=CPU)])
    mutation.mutate(arrival(pod({"requests": {"memory": "1Gi"}})), [offline()], surroundings)
    mutation.mutate(arrival(pod(ASKS)), [], surroundings)
    keeping = offline(marks={"config.koordinator.sh/skip-update-resources": "true"})
    mutation.mutate(arrival(pod(ASKS)), [keeping], surroundings)
