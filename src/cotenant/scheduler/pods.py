"""Which pods the rules are for."""

from cotenant.api.objects import Pod
from cotenant.model import pod as koordinator
from cotenant.scheduler.rules import AppliesTo


def exemption_of(pod: Pod) -> str | None:
    """Return why the pod is never refused, or None where it may be."""
    if any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ()):
        return "DaemonSet pod"
    if pod.spec.priority_class_name in koordinator.SYSTEM_CRITICAL_CLASSES or (
        pod.spec.priority is not None and pod.spec.priority >= koordinator.SYSTEM_CRITICAL_PRIORITY
    ):
        return "system-critical pod"
    return None


def is_offline(pod: Pod) -> bool:
    """Tell whether the pod is best-effort work: by Koordinator's class or band, without them by Kubernetes' class."""
    labels = pod.metadata.labels or {}
    qos_class = labels.get(koordinator.QOS_LABEL)
    if qos_class:
        return qos_class == "BE"
    band = labels.get(koordinator.PRIORITY_CLASS_LABEL)
    if band:
        return band in ("koord-batch", "koord-free")
    return koordinator.band_of(pod.spec.priority) in ("batch", "free") or pod.status.qos_class == "BestEffort"


def is_in_scope(pod: Pod, applies_to: AppliesTo) -> bool:
    """Tell whether hard limits and scores are for this pod."""
    if applies_to in ("all", "none"):
        return applies_to == "all"
    return is_offline(pod) == (applies_to == "offline")
