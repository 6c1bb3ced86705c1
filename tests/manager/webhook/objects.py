"""Pods and profiles for the tests of this folder, written out or made up by hypothesis."""

import copy
from typing import Any

import msgspec
from hypothesis import strategies as st

from cotenant.api.koordinator.profile import Profile
from cotenant.manager.webhook import profiles
from cotenant.manager.webhook.mutation import Arrival
from cotenant.manager.webhook.surroundings import PriorityClass, Surroundings

CLASSES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}


def pod(
    resources: dict[str, Any] | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    name: str = "web-0",
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod of one container, as an API server hands it over."""
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "labels": labels or {}}
    if annotations:
        metadata["annotations"] = annotations
    container = {"name": "main", "image": "busybox", "resources": resources or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "priority": 0, "schedulerName": "default-scheduler", **spec},
    }


def profile(name: str = "batch", *, marks: dict[str, str] | None = None, **spec: Any) -> Profile:
    """Return a profile with these annotations; the spec's fields as they are written in YAML."""
    value = {"metadata": {"name": name, "annotations": marks or {}}, "spec": spec}
    return msgspec.convert(value, Profile)


def ready(name: str = "batch", *, marks: dict[str, str] | None = None, **spec: Any) -> profiles.Ready:
    """Return such a profile, checked."""
    return profiles.ready(profile(name, marks=marks, **spec))


def offline(name: str = "batch", *, marks: dict[str, str] | None = None, **spec: Any) -> profiles.Ready:
    """Return a profile that makes pods offline work."""
    return ready(name, marks=marks, qosClass="BE", priorityClassName="koord-batch", **spec)


def around(namespace_labels: dict[str, str] | None = None, **given: Any) -> Surroundings:
    """Return surroundings with Koordinator's priority classes."""
    classes = {
        name: msgspec.convert({"metadata": {"name": name}, "value": value}, PriorityClass)
        for name, value in CLASSES.items()
    }
    return Surroundings(namespace="shop", namespace_labels=namespace_labels or {}, priority_classes=classes, **given)


def arrival(value: dict[str, Any], *, update: bool = False) -> Arrival:
    """Return a pod's arrival; its identity is its name."""
    return Arrival(pod=copy.deepcopy(value), identity=f"shop/{value['metadata'].get('name')}", update=update)


_KEYS = st.sampled_from(["app", "tier", "example.com/team", "koordinator.sh/qosClass", "koordinator.sh/priority-class"])
_VALUES = st.sampled_from(["", "web", "a-b", "BE", "LS", "koord-batch", "koord-mid", "x"])
_TEXTS = st.dictionaries(_KEYS, _VALUES, max_size=3)
_CPU = st.sampled_from(["1", "500m", "0", "1.5", "250u", "2k"])
_MEMORY = st.sampled_from(["1Gi", "128974848", "1.5Gi", "1500m", "129M", "0"])


@st.composite
def _amounts(draw: st.DrawFn) -> dict[str, str]:
    found = {}
    for name, values in (("cpu", _CPU), ("memory", _MEMORY), ("kubernetes.io/batch-cpu", st.just("1500"))):
        if draw(st.booleans()):
            found[name] = draw(values)
    return found


@st.composite
def _containers(draw: st.DrawFn, prefix: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": f"{prefix}-{draw(st.integers(0, 2))}", "image": "busybox"}
    if draw(st.booleans()):
        container["env"] = [{"name": draw(st.sampled_from("AB")), "value": "1"}]
    if draw(st.booleans()):
        container["resources"] = {side: draw(_amounts()) for side in ("requests", "limits") if draw(st.booleans())}
    return container


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Make up a pod: labels, annotations, containers with and without resources, init containers, sidecars."""
    value = pod(labels=draw(_TEXTS), annotations=draw(_TEXTS), name=draw(st.sampled_from(["a", "b", "c"])))
    unique: Any = {"unique_by": lambda container: container["name"]}
    value["spec"]["containers"] = draw(st.lists(_containers("main"), min_size=1, max_size=3, **unique))
    init = draw(st.lists(_containers("init"), max_size=2, **unique))
    for container in init:
        if draw(st.booleans()):
            container["restartPolicy"] = "Always"
    if init:
        value["spec"]["initContainers"] = init
    if draw(st.booleans()):
        value["spec"]["priorityClassName"] = draw(st.sampled_from(sorted(CLASSES)))
        value["spec"]["priority"] = CLASSES[value["spec"]["priorityClassName"]]
    return value


_PATCHES: Any = st.sampled_from(
    [
        None,
        {"metadata": {"labels": {"app": None, "tier": "patched"}}},
        {"spec": {"terminationGracePeriodSeconds": 5, "tolerations": [{"operator": "Exists"}]}},
        {"spec": {"containers": [{"name": "main-0", "env": [{"name": "A", "value": "2"}, {"name": "C"}]}]}},
        {"spec": {"containers": [{"name": "main-1", "$patch": "delete"}, {"name": "extra", "image": "x"}]}},
        {"spec": {"containers": [{"name": "main-0", "resources": {"limits": {"cpu": "3"}}}]}},
        {"spec": {"containers": [{"name": "main-0", "env": [{"$patch": "replace"}, {"name": "Z", "value": "1"}]}]}},
        {"spec": {"priorityClassName": "koord-free"}},
        {"spec": {"priorityClassName": None}},
    ]
)


@st.composite
def ready_profiles(draw: st.DrawFn) -> list[profiles.Ready]:
    """Make up profiles that overwrite each other's labels, copy them about, append to them and patch."""
    found = []
    for name in draw(st.lists(st.sampled_from(["p1", "p2", "p3"]), unique=True, max_size=3)):
        spec: dict[str, Any] = {
            "labels": draw(_TEXTS),
            "annotations": draw(_TEXTS),
            "labelKeysMapping": draw(st.dictionaries(_KEYS, _KEYS, max_size=2)),
            "annotationKeysMapping": draw(st.dictionaries(_KEYS, _KEYS, max_size=2)),
            "labelSuffixes": draw(st.dictionaries(_KEYS, st.sampled_from(["-x", "y"]), max_size=2)),
            "qosClass": draw(st.sampled_from(["", "BE", "LS", "LSR"])),
            "priorityClassName": draw(st.sampled_from(["", *sorted(CLASSES)])),
            "schedulerName": draw(st.sampled_from(["", "koord-scheduler"])),
            "koordinatorPriority": draw(st.sampled_from([None, 7])),
            "probability": draw(st.sampled_from([None, "50%", 100, 0])),
            "patch": draw(_PATCHES),
        }
        if draw(st.booleans()):
            spec["selector"] = {"matchLabels": draw(st.dictionaries(_KEYS, _VALUES, max_size=1))}
        keeps = draw(st.booleans())
        marks = {"config.koordinator.sh/skip-update-resources": "true"} if keeps else None
        found.append(ready(name, marks=marks, **spec))
    return found
