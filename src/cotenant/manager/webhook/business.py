"""What a pod gets for its type of business, where neither it nor a profile says: docs/templates.md."""

from typing import Any

from cotenant.detect import templates
from cotenant.manager.webhook import affinity
from cotenant.manager.webhook.surroundings import Surroundings
from cotenant.manager.webhook.validation import BANDS
from cotenant.model import pod as pods

Pod = dict[str, Any]


def template_of(pod: Pod, around: Surroundings) -> templates.Template | None:
    """Return the template of a pod's type of business, or None where it has none, or one that nobody knows."""
    named = templates.type_of(pod["metadata"].get("labels") or {}, around.namespace_labels)
    return around.templates.get(named) if named is not None else None


def default(pod: Pod, template: templates.Template) -> None:
    """Give a pod its type as a label, for its node's agent, and the class, in place; what is there stays.

    A class that does not go with the pod's priority is not given: that would only have the pod refused.
    """
    labels = dict(pod["metadata"].get("labels") or {})
    labels.setdefault(templates.WORKLOAD_TYPE_LABEL, template.name)
    qos = template.qos_class
    if qos is not None and pods.QOS_LABEL not in labels:
        band = pods.band(labels, pod["spec"].get("priority"), qos)
        if band in BANDS[qos]:
            labels[pods.QOS_LABEL] = qos
    pod["metadata"]["labels"] = labels


def strength(template: templates.Template | None, configured: affinity.Strength) -> affinity.Strength:
    """Return how strongly a pod keeps to calm nodes: by its type, or as configured; ``off`` is off for all."""
    if template is None or template.affinity is None or configured == "off":
        return configured
    return template.affinity
