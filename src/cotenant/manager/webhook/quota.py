"""Quotas and limits of a namespace that count cpu and memory, against pods whose cpu and memory were translated.

A ResourceQuota on ``requests.cpu`` wants every pod to state it, and never counts ``kubernetes.io/batch-cpu``: the API
server would refuse a translated pod with "must specify requests.cpu". Letting it through without counting it would
lift the owner's limit. So the pod is refused here, in words that name the quota and the ways out.
"""

from collections.abc import Collection
from typing import Any

from cotenant.manager.webhook.errors import Refused
from cotenant.manager.webhook.surroundings import LimitItem, Quota, ScopeRequirement, Surroundings

_COUNTED = {f"{prefix}{native}": native for native in ("cpu", "memory") for prefix in ("", "requests.", "limits.")}
_BOUNDED_TYPES = ("Container", "Pod")
_LIST_FIELDS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def check(pod: dict[str, Any], translated: Collection[str], profiles: Collection[str], around: Surroundings) -> None:
    """Return if no quota and no limit of the namespace stands against a translated pod.

    :raises Refused: with the quota or the LimitRange, and what to do.
    """
    if not translated:
        return
    by = f"profile {', '.join(profiles)}"
    place = around.namespace
    for quota in around.quotas:
        counted = sorted(name for name in quota.spec.hard or () if _COUNTED.get(name) in translated)
        if counted and applies(quota, pod):
            raise Refused(
                f"ResourceQuota {place}/{quota.metadata.name} counts {', '.join(counted)}, which {by} replaces"
                " by resources that it cannot count; give the quota a scopeSelector that leaves the priority class"
                f" {pod['spec'].get('priorityClassName') or '(none)'} out, annotate the profile with"
                " config.koordinator.sh/skip-update-resources, or run the pod in another namespace"
            )
    for limits in around.limit_ranges:
        for item in limits.spec.limits or ():
            bounded = sorted(_bounded(item) & set(translated))
            if bounded:
                raise Refused(
                    f"LimitRange {place}/{limits.metadata.name} bounds {', '.join(bounded)} of a {item.type},"
                    f" which {by} replaces; take the bound away, annotate the profile with"
                    " config.koordinator.sh/skip-update-resources, or run the pod in another namespace"
                )


def applies(quota: Quota, pod: dict[str, Any]) -> bool:
    """Return whether a pod without native resources is in all scopes of a quota."""
    requirements = [ScopeRequirement(scope_name=scope, operator="Exists") for scope in quota.spec.scopes or ()]
    selector = quota.spec.scope_selector
    requirements += (selector.match_expressions if selector is not None else None) or []
    return all(_in_scope(requirement, pod["spec"]) for requirement in requirements)


def _in_scope(requirement: ScopeRequirement, spec: dict[str, Any]) -> bool:
    if requirement.scope_name == "PriorityClass":
        name = spec.get("priorityClassName") or ""
        values = requirement.values or []
        by_operator = {
            "In": name in values,
            "NotIn": name not in values,
            "Exists": bool(name),
            "DoesNotExist": not name,
        }
        return by_operator.get(requirement.operator, True)
    terminating = spec.get("activeDeadlineSeconds") is not None
    scopes = {
        "Terminating": terminating,
        "NotTerminating": not terminating,
        "BestEffort": True,  # extended resources do not count for Kubernetes' own classes
        "NotBestEffort": False,
        "CrossNamespacePodAffinity": _crosses_namespaces(spec),
    }
    return scopes.get(requirement.scope_name, True)


def _crosses_namespaces(spec: dict[str, Any]) -> bool:
    affinity = spec.get("affinity") or {}
    terms = [
        entry.get("podAffinityTerm", entry)
        for kind in ("podAffinity", "podAntiAffinity")
        for field in _LIST_FIELDS
        for entry in (affinity.get(kind) or {}).get(field) or ()
    ]
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)


def _bounded(item: LimitItem) -> set[str]:
    if item.type not in _BOUNDED_TYPES:
        return set()
    bounds = (item.min, item.max, item.max_limit_request_ratio)
    return {name for bound in bounds for name in bound or ()}
