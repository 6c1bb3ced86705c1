"""What colocation profiles make of a pod. Pure: the pod as it came in, the pod as it goes on out.

Doing it again to what came out changes nothing. For that an annotation holds which profiles were applied and the labels
and annotations that they changed as they were before: a second round starts from those, so that a suffix is not
appended twice and a label that one profile adds does not make another one match.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.api import selector, unstructured
from cotenant.api.koordinator.names import MUTATING_UPDATE_LABEL
from cotenant.manager.webhook import affinity, business, merging, quota, translation, validation
from cotenant.manager.webhook.errors import Refused
from cotenant.manager.webhook.profiles import Ready
from cotenant.manager.webhook.surroundings import Surroundings
from cotenant.model import pod as pods
from cotenant.units.malformed import MALFORMED

Pod = dict[str, Any]

RECORD_ANNOTATION = "cotenant.io/profiles"
"""Which profiles were applied, and what they changed of labels and annotations, as it was before."""
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
COLOCATION_LABEL = "cotenant.io/colocation"
COLOCATION_ENABLED = "enabled"
"""A namespace with this label is for co-location: its pods are never let through unseen."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One pod as the API server hands it over."""

    pod: Pod
    identity: str
    """What a profile's percentage is drawn by: the same for the same pod."""
    update: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The pod as it goes on, and which profiles had a hand in it."""

    pod: Pod
    applied: tuple[str, ...] = ()


class _Record(msgspec.Struct, kw_only=True, omit_defaults=True):
    applied: list[str] = []
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}


def identity_of(pod: Pod, namespace: str, request_uid: str) -> str:
    """Return what a pod's draws depend on: its name; where the API server makes that later, the uid it has already."""
    metadata = unstructured.metadata(pod)
    return f"{namespace}/{metadata.get('name') or metadata.get('uid') or request_uid}"


def mutate(
    arrival: Arrival, profiles: Sequence[Ready], around: Surroundings, strength: affinity.Strength = "off"
) -> Outcome:
    """Return what becomes of a pod. ``strength``: of the affinity that managed pods get whose type says no other.

    :raises Refused: if a profile cannot be applied to this pod; nothing of it is applied then.
    """
    metadata = unstructured.metadata(arrival.pod)
    if MIRROR_ANNOTATION in (metadata.get("annotations") or {}):
        return Outcome(pod=arrival.pod)
    if arrival.update and (metadata.get("labels") or {}).get(MUTATING_UPDATE_LABEL) != "true":
        return Outcome(pod=arrival.pod)
    pod = copy.deepcopy(arrival.pod)
    pod["metadata"] = pod.get("metadata") or {}
    pod["spec"] = pod.get("spec") or {}
    template = business.template_of(pod, around)
    if template is not None and not arrival.update and RECORD_ANNOTATION not in unstructured.annotations(pod):
        business.default(pod, template)  # once: a profile may have changed the priority, on which the class depends
    base = _base(pod)
    matched = matching(base, arrival.identity, profiles, around)
    if matched:
        pod["metadata"] |= {key: dict(values) for key, values in base.items()}
        for profile in matched:
            pod = _apply(pod, profile, metadata_only=arrival.update)
        if arrival.update:
            _keep_immutable(pod, metadata.get("labels") or {})
        _check_labels(pod, base, matched)
        _record(pod, base, matched)
    if not arrival.update:
        _resolve_priority(pod, arrival.pod.get("spec") or {}, matched, around)
        _translate(pod, matched, around)
        _steer(pod, matched, around, business.strength(template, strength))
    _set(pod, "annotations", pods.EXTENDED_RESOURCE_SPEC_ANNOTATION, translation.extended_resource_spec(pod))
    for key in ("labels", "annotations"):
        if not pod["metadata"].get(key) and key not in metadata:
            pod["metadata"].pop(key, None)
    return Outcome(pod=pod, applied=tuple(profile.name for profile in matched))


def applied_to(pod: Pod) -> Sequence[str]:
    """Return the names of the profiles that were applied to a pod."""
    return _recorded(unstructured.annotations(pod)).applied


def matching(
    base: Mapping[str, Mapping[str, str]], identity: str, profiles: Sequence[Ready], around: Surroundings
) -> list[Ready]:
    """Return the profiles for a pod with these labels, in the order in which they are applied."""
    chosen = [one for one in profiles if one.selects(around.namespace_labels, base["labels"]) and one.draws(identity)]
    return sorted(chosen, key=lambda profile: profile.name)


def qos_of(pod: Pod) -> pods.QosClass:
    """Return Koordinator's class of a pod, with the default for one without the label."""
    labelled = pods.qos_class((pod["metadata"].get("labels") or {}).get(pods.QOS_LABEL))
    if labelled is not None:
        return labelled
    of_pod = pod["spec"].get("resources")
    sources = [of_pod] if of_pod else [c.get("resources") or {} for _, c in translation.containers_of(pod)]
    sides = [(source.get("requests") or {}, source.get("limits") or {}) for source in sources]
    return pods.default_qos(pods.kube_qos(sides))


def band_of(pod: Pod) -> pods.PriorityBand | None:
    """Return the band of a pod: by label, by priority, by class."""
    return pods.band(pod["metadata"].get("labels") or {}, pod["spec"].get("priority"), qos_of(pod))


def _base(pod: Pod) -> dict[str, dict[str, str]]:
    """Return labels and annotations as they were before profiles were applied to the pod."""
    found = {key: dict(pod["metadata"].get(key) or {}) for key in ("labels", "annotations")}
    found["annotations"].pop(pods.EXTENDED_RESOURCE_SPEC_ANNOTATION, None)  # made anew from the containers
    record = _recorded(found["annotations"])
    found["annotations"].pop(RECORD_ANNOTATION, None)
    for current, before in ((found["labels"], record.labels), (found["annotations"], record.annotations)):
        for key, value in before.items():
            if value is None:
                current.pop(key, None)
            else:
                current[key] = value
    return found


def _recorded(annotations: Mapping[str, str]) -> _Record:
    """Return what the annotation says; nothing where there is none, or it is not ours."""
    try:
        return msgspec.json.decode(annotations.get(RECORD_ANNOTATION) or "{}", type=_Record)
    except MALFORMED:
        return _Record()


def _apply(pod: Pod, profile: Ready, *, metadata_only: bool) -> Pod:
    """Return the pod with one profile applied: what it sets first, then what it copies, then its patch."""
    spec = profile.spec
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    labels |= spec.labels or {}
    annotations |= spec.annotations or {}
    for values, mapping in ((labels, spec.label_keys_mapping), (annotations, spec.annotation_keys_mapping)):
        # All are read before any is written: the outcome does not depend on an order among keys.
        values |= {new: values[old] for old, new in sorted((mapping or {}).items()) if old in values}
    labels |= {key: labels[key] + suffix for key, suffix in (spec.label_suffixes or {}).items() if key in labels}
    if spec.qos_class:
        labels[pods.QOS_LABEL] = spec.qos_class
    if spec.koordinator_priority is not None:
        labels[pods.SUB_PRIORITY_LABEL] = str(spec.koordinator_priority)
    if not metadata_only:
        if spec.scheduler_name:
            pod["spec"]["schedulerName"] = spec.scheduler_name
        if spec.priority_class_name:
            pod["spec"]["priorityClassName"] = spec.priority_class_name
    if spec.patch is not None:
        keys = ("metadata",) if metadata_only else ("metadata", "spec")
        pod = merging.merge(pod, {key: spec.patch[key] for key in keys if key in spec.patch})
        for key in ("labels", "annotations"):
            pod["metadata"][key] = pod["metadata"].get(key) or {}
    return pod


def _keep_immutable(pod: Pod, before: Mapping[str, str]) -> None:
    """Leave a running pod its class and priority, which may not change."""
    for label in validation.IMMUTABLE_LABELS:
        _set(pod, "labels", label, before.get(label))


def _check_labels(pod: Pod, base: Mapping[str, Mapping[str, str]], matched: Sequence[Ready]) -> None:
    for key, value in pod["metadata"]["labels"].items():
        if base["labels"].get(key) == value:
            continue
        problem = selector.name_problem(key) or (
            selector.value_problem(value) if isinstance(value, str) else f"{value!r}: not a text"
        )
        if problem:
            names = ", ".join(profile.name for profile in matched)
            raise Refused(f"metadata.labels[{key}]: profile {names} makes it {problem}")


def _record(pod: Pod, base: Mapping[str, Mapping[str, str]], matched: Sequence[Ready]) -> None:
    def changed(key: str) -> dict[str, str | None]:
        before, after = base[key], pod["metadata"][key]
        return {name: before.get(name) for name in sorted({*before, *after}) if before.get(name) != after.get(name)}

    record = _Record(
        applied=[profile.name for profile in matched], labels=changed("labels"), annotations=changed("annotations")
    )
    pod["metadata"]["annotations"][RECORD_ANNOTATION] = msgspec.json.encode(record).decode()


def _resolve_priority(pod: Pod, before: Mapping[str, Any], matched: Sequence[Ready], around: Surroundings) -> None:
    """Set the number and the policy that go with a priority class that a profile gave, as the API server checks it."""
    name = pod["spec"].get("priorityClassName")
    if not matched or (name == before.get("priorityClassName") and (not name or before.get("priority") is not None)):
        return
    if not name:  # taken away: the API server gives its default
        for field in ("priorityClassName", "priority", "preemptionPolicy"):
            pod["spec"].pop(field, None)
        return
    found = around.priority_classes.get(name)
    if found is None:
        by = ", ".join(profile.name for profile in matched)
        raise Refused(
            f"spec.priorityClassName: profile {by} gives {name}, and there is no such PriorityClass; create it"
        )
    pod["spec"]["priority"] = found.value
    if found.preemption_policy is not None or "preemptionPolicy" in pod["spec"]:
        pod["spec"]["preemptionPolicy"] = found.preemption_policy or "PreemptLowerPriority"


def _translate(pod: Pod, matched: Sequence[Ready], around: Surroundings) -> None:
    if not matched or any(profile.keeps_resources for profile in matched):
        return
    band = band_of(pod)
    if band is None:
        return
    translated = translation.translate(pod, band)
    quota.check(pod, translated, [profile.name for profile in matched], around)


def _steer(pod: Pod, matched: Sequence[Ready], around: Surroundings, configured: affinity.Strength) -> None:
    labels = pod["metadata"].get("labels") or {}
    labelled = pods.qos_class(labels.get(pods.QOS_LABEL))
    for_colocation = around.namespace_labels.get(COLOCATION_LABEL) == COLOCATION_ENABLED
    if labelled != "SYSTEM" and (matched or labelled or for_colocation) and affinity.steerable(pod):
        affinity.inject(pod, qos_of(pod) == "BE", affinity.strength_of(labels, configured))


def _set(pod: Pod, kind: str, key: str, value: str | None) -> None:
    """Set a label or an annotation, or take it away where the value is None."""
    values = dict(pod["metadata"].get(kind) or {})
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
    if values or pod["metadata"].get(kind):
        pod["metadata"][kind] = values
