"""The resources that overcommit publishes, and the annotations by which others take part."""

from typing import Literal

from cotenant.model import pod

Resource = Literal["cpu", "memory"]
RESOURCES: tuple[Resource, ...] = ("cpu", "memory")

BATCH: dict[Resource, str] = {"cpu": pod.BATCH_CPU[0], "memory": pod.BATCH_MEMORY[0]}
MID: dict[Resource, str] = {"cpu": pod.MID_CPU[0], "memory": "kubernetes.io/mid-memory"}
PUBLISHED = (*BATCH.values(), *MID.values())
"""CPU in whole thousandths of a core, memory in bytes."""

COLOCATION_STRATEGY_ANNOTATION = "node.koordinator.sh/colocation-strategy"
CPU_RECLAIM_LABEL = "node.koordinator.sh/cpu-reclaim-ratio"
MEMORY_RECLAIM_LABEL = "node.koordinator.sh/memory-reclaim-ratio"
MID_STATIC_CPU_LABEL = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
MID_STATIC_MEMORY_LABEL = "node.koordinator.sh/mid-static-memory-reserved-ratio"
THIRD_PARTY_ANNOTATION = "node.koordinator.sh/thirdPartyAllocations"
ORIGIN_ANNOTATION = "node.koordinator.sh/originExtendedAllocatable"
