"""Koordinator's kinds as CustomResourceDefinitions, for clusters that do not have them: generated from our structs.

They keep fields that the structs do not know: other programs, and later versions of Koordinator, write those.
"""

from typing import Any

import msgspec

from cotenant.api import crd, schema
from cotenant.api.koordinator import node_metric, node_slo, profile, topology
from cotenant.model import policy

_OPEN = schema.Traits(is_open=True)
_AGE = crd.Column("Age", ".metadata.creationTimestamp", "date")


class _Nothing(msgspec.Struct):
    """Nothing is said here."""


def _sentence(kind: Any) -> str:
    return " ".join((kind.__doc__ or "").split()).replace("``", "`")


NODE_SLO = crd.Kind(
    kind=node_slo.KIND,
    plural=node_slo.PLURAL,
    short="",
    description="The strategies of one node, rendered by the manager from the ConfigMap slo-controller-config.",
    fields={"spec": policy.NodeSlo, "status": _Nothing},
    columns=(
        crd.Column("Suppress", ".spec.resourceUsedThresholdWithBE.enable", "boolean"),
        crd.Column("Burst", ".spec.cpuBurstStrategy.policy"),
        _AGE,
    ),
    group=node_slo.GROUP,
    version=node_slo.VERSION,
    traits=_OPEN,
)
NODE_METRIC = crd.Kind(
    kind=node_metric.KIND,
    plural=node_metric.PLURAL,
    short="",
    description=_sentence(node_metric.NodeMetric),
    fields={"spec": node_metric.NodeMetricSpec, "status": node_metric.NodeMetricStatus},
    columns=(crd.Column("Updated", ".status.updateTime", "date"), _AGE),
    group=node_metric.GROUP,
    version=node_metric.VERSION,
    traits=_OPEN,
)
PROFILE = crd.Kind(
    kind=profile.KIND,
    plural=profile.PLURAL,
    short="",
    description="What is done to pods that its selectors choose, when they are made.",
    fields={"spec": profile.ProfileSpec, "status": _Nothing},
    columns=(
        crd.Column("QoS", ".spec.qosClass"),
        crd.Column("Priority", ".spec.priorityClassName"),
        _AGE,
    ),
    group=profile.GROUP,
    version=profile.VERSION,
    traits=_OPEN,
)
TOPOLOGY = crd.Kind(
    kind=topology.KIND,
    plural=topology.PLURAL,
    short="node-res-topo",
    description=_sentence(topology.NodeResourceTopology),
    fields={"topologyPolicies": list[str], "zones": list[topology.Zone]},
    group=topology.GROUP,
    version=topology.VERSION,
    traits=_OPEN,
    approved="https://github.com/kubernetes/enhancements/pull/1870",
)

KINDS: dict[str, crd.Kind] = {kind.plural: kind for kind in (NODE_SLO, NODE_METRIC, PROFILE, TOPOLOGY)}
