"""One node's balance: from its size, its pods and what they use to what batch and mid work may ask for."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from cotenant.manager.overcommit import formula, names
from cotenant.manager.overcommit.consumption import Consumption
from cotenant.manager.overcommit.nodes import NodeFacts
from cotenant.manager.overcommit.pods import PodFacts
from cotenant.manager.overcommit.strategy import Strategy


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The terms of both formulas, for each resource of which enough is known."""

    batch: Mapping[names.Resource, formula.Batch]
    mid: Mapping[names.Resource, formula.Mid]

    @property
    def values(self) -> dict[str, int]:
        """What is to be published, by the name of the resource; what is not known is left out."""
        found = {names.BATCH[resource]: terms.value for resource, terms in self.batch.items()}
        return found | {names.MID[resource]: terms.value for resource, terms in self.mid.items()}

    @property
    def origin(self) -> dict[str, int]:
        """The batch resources before what other schedulers gave out is taken off."""
        return {names.BATCH[resource]: terms.origin for resource, terms in self.batch.items()}


def of(node: NodeFacts, pods: Sequence[PodFacts], use: Consumption, strategy: Strategy, wall: float) -> Balance:
    """Return the balance of a node. ``pods`` are those bound to it that have not finished; ``wall`` is now."""
    batch: dict[names.Resource, formula.Batch] = {}
    mid: dict[names.Resource, formula.Mid] = {}
    for resource in names.RESOURCES:
        system = system_used(pods, use, resource)
        if system is None:
            continue
        batch[resource] = formula.batch(
            node.capacity[resource],
            strategy.reclaim_percent[resource],
            strategy.policy[resource],
            system_used=system,
            reserved=node.reserved[resource],
            claims=[claim for _, claim in claims(pods, use, strategy, wall, resource)],
            cap_percent=strategy.batch_percent[resource],
            amplification=node.amplification if resource == "cpu" else Fraction(1),
            third_party=node.third_party.get(names.BATCH[resource], 0),
        )
        mid[resource] = _mid(node, pods, use, strategy, resource, system)
    return Balance(batch=batch, mid=mid)


def system_used(pods: Iterable[PodFacts], use: Consumption, resource: names.Resource) -> int | None:
    """Return what everything uses that is neither a pod nor offline work outside Kubernetes; None where unknown."""
    running = (pod for pod in pods if pod.running_since is not None)
    unmeasured = sum(pod.request[resource] for pod in running if _used(use, pod.key, resource) is None)
    system = use.system_use(resource, unmeasured)
    return None if system is None else system + (use.host_high_priority.of(resource) or 0)


def claims(
    pods: Sequence[PodFacts], use: Consumption, strategy: Strategy, wall: float, resource: names.Resource
) -> list[tuple[PodFacts | None, formula.Claim]]:
    """Return what each pod that batch work yields to holds; None stands for one that is measured but not listed.

    Such a pod was deleted a moment ago, or is so new that the API server's word of it is still under way.
    """
    held: list[tuple[PodFacts | None, formula.Claim]] = [
        (
            pod,
            formula.Claim(
                request=pod.request[resource],
                used=_used(use, pod.key, resource),
                exclusive=pod.exclusive and resource == "cpu",
                settled=pod.settled(wall, strategy.settle_seconds),
            ),
        )
        for pod in pods
        if pod.high_priority
    ]
    listed = {pod.key for pod in pods}
    for key, measured in use.pods.items():
        used = measured.use.of(resource)
        if key not in listed and not measured.offline and used is not None:
            held.append((None, formula.Claim(request=None, used=used)))
    return held


def _used(use: Consumption, key: str, resource: names.Resource) -> int | None:
    measured = use.pods.get(key)
    return None if measured is None else measured.use.of(resource)


def _mid(
    node: NodeFacts,
    pods: Sequence[PodFacts],
    use: Consumption,
    strategy: Strategy,
    resource: names.Resource,
    system: int,
) -> formula.Mid:
    capacity, third_party = node.capacity[resource], node.third_party.get(names.MID[resource], 0)
    if strategy.mid_static:
        return formula.mid_static(capacity, strategy.mid_static_percent[resource], third_party)
    mid_pods = [pod for pod in pods if pod.high_priority and not pod.prod]
    return formula.mid(
        capacity,
        reclaimable=use.reclaimable.of(resource),
        node_used=use.node.of(resource),
        mid_used=sum(_used(use, pod.key, resource) or 0 for pod in mid_pods),
        system=max(system, node.reserved[resource]),
        prod_request=sum(pod.request[resource] for pod in pods if pod.prod),
        unallocated_percent=strategy.mid_unallocated_percent,
        cap_percent=strategy.mid_percent[resource],
        third_party=third_party,
    )
