"""``NodeSLO`` (``slo.koordinator.sh/v1alpha1``): the strategies of one node, as the manager renders them.

The fields are those of :class:`cotenant.model.policy.NodeSlo`. What others put beside them stays.
"""

from collections.abc import Mapping
from typing import Any

from cotenant.api.koordinator import slo_config

GROUP = "slo.koordinator.sh"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "NodeSLO"
PLURAL = "nodeslos"

RENDERED = (
    "resourceUsedThresholdWithBE", "resourceQOSStrategy", "cpuBurstStrategy", "systemStrategy", "hostApplications",
)  # fmt: skip
"""The fields of ``spec`` that the ConfigMap decides; ``extensions`` and others are left as they are found."""


def rendered(config: slo_config.SloConfig, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return what the ``spec`` of a node with these labels holds of the fields in :data:`RENDERED`."""
    spec: dict[str, Any] = {
        "resourceUsedThresholdWithBE": config.of("resource-threshold-config", labels),
        "resourceQOSStrategy": config.of("resource-qos-config", labels),
        "cpuBurstStrategy": config.of("cpu-burst-config", labels),
        "systemStrategy": config.of("system-config", labels),
    }
    applications = config.of("host-application-config", labels).get("applications")
    if applications:
        spec["hostApplications"] = applications
    return spec


def merged(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ``spec`` with what is wanted in it, and what others put there beside."""
    return {**{key: value for key, value in found.items() if key not in RENDERED}, **wanted}
