"""What a node is to offer next, given what it offers now: published on a real change, taken back without harm."""

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from cotenant.manager.overcommit import names
from cotenant.manager.overcommit.pods import PodFacts
from cotenant.manager.overcommit.strategy import Strategy

Values = Mapping[str, int]
"""Whole numbers by the name of the resource; what is left out is not offered."""


def differs(old: int | None, new: int | None, threshold: Fraction) -> bool:
    """Return whether a change is worth telling: by more than the threshold's share of the old value, or there or not.

    100 → 110 is not at a threshold of 0.1, 100 → 111 is, and so is 0 → 1.
    """
    if old is None or new is None:
        return old is not new
    return abs(new - old) * threshold.denominator > old * threshold.numerator


def is_due(old: Values, new: Values, since_seconds: float | None, strategy: Strategy) -> bool:
    """Return whether new values are to be published. ``since_seconds``: since they last were; None: never by us."""
    if since_seconds is not None and since_seconds > strategy.sync_seconds:
        return True
    return any(differs(old.get(name), new.get(name), strategy.diff_threshold) for name in {**old, **new})


def asked(pods: Iterable[PodFacts]) -> dict[str, int]:
    """Return what the pods on a node ask for of the resources that are published, together."""
    sums: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.extended.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def drained(published: Values, pods: Iterable[PodFacts]) -> dict[str, int]:
    """Return what a node offers of which nothing is known any more, or where co-location is switched off.

    Room for the pods that are there and for nobody else: no more than was published, no more than they ask for, and
    nothing where none are left. To take the resources away from under running pods would make an agent that compares
    requests with what the node offers evict all of them, and the kubelet refuse them when it starts anew.
    """
    wanted = asked(pods)
    return {name: min(value, wanted[name]) for name, value in published.items() if wanted.get(name, 0) > 0}


def patch(
    published: Values,
    new: Values,
    torn: Iterable[str] = (),
    origin: Mapping[str, int] | None = None,
    had_origin: str | None = None,
) -> dict[str, Any] | None:
    """Return the merge patch of a Node's status that makes it offer the new values, or None where it does already.

    Both capacity and allocatable are written: the kubelet derives the second from the first. ``origin`` goes into the
    annotation for other schedulers of the same resources; None leaves it off.
    """
    torn = frozenset(torn)
    changed: dict[str, str | None] = {
        name: str(value) for name, value in new.items() if published.get(name) != value or name in torn
    }
    changed |= dict.fromkeys(name for name in (*published, *torn) if name not in new)
    body: dict[str, Any] = {}
    if changed:
        body["status"] = {"capacity": changed, "allocatable": dict(changed)}
    text = origin_text(origin)
    if text != had_origin:
        body["metadata"] = {"annotations": {names.ORIGIN_ANNOTATION: text}}
    return body or None


def origin_text(origin: Mapping[str, int] | None) -> str | None:
    """Return the annotation's JSON, or None where nothing is shared."""
    if not origin:
        return None
    return json.dumps(
        {"resources": {name: str(value) for name, value in sorted(origin.items())}}, separators=(",", ":")
    )


def falls(published: Values, new: Values) -> float:
    """Return the largest share by which a published value goes down, 0 where none does: what is urgent."""
    shares = [(old - new.get(name, 0)) / old for name, old in published.items() if old > 0]
    return max([0.0, *shares])
