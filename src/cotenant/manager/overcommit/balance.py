"""One node's balance: from its size, its pods and what they use to what batch and mid work may ask for."""

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction

from cotenant.manager.overcommit import formula, names
from cotenant.manager.overcommit.consumption import UNKNOWN, Consumption, PodUse
from cotenant.manager.overcommit.nodes import NodeFacts
from cotenant.manager.overcommit.pods import PodFacts
from cotenant.manager.overcommit.strategy import Strategy

UNAMPLIFIED = Fraction(1)
UNMEASURED = PodUse(UNKNOWN)


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
    """Return the balance of a node. ``pods`` are those bound to it; ``wall`` is now."""
    batch: dict[names.Resource, formula.Batch] = {}
    mid: dict[names.Resource, formula.Mid] = {}
    view = View(pods, use, strategy, wall)
    for resource in names.RESOURCES:
        system = view.system_used(resource)
        if system is None:
            continue
        batch[resource] = formula.batch(
            node.capacity[resource],
            strategy.reclaim_percent[resource],
            strategy.policy[resource],
            system_used=system,
            reserved=node.reserved[resource],
            claims=[claim for _, claim in view.claims(resource)],
            cap_percent=strategy.batch_percent[resource],
            amplification=node.amplification if resource == "cpu" else UNAMPLIFIED,
            third_party=node.third_party.get(names.BATCH[resource], 0),
        )
        mid[resource] = _mid(node, view, resource, system)
    return Balance(batch=batch, mid=mid)


class View:
    """The pods of a node, each beside what it uses."""

    def __init__(self, pods: Sequence[PodFacts], use: Consumption, strategy: Strategy, wall: float) -> None:
        self.use = use
        self.strategy = strategy
        self.pods = [(pod, use.pods.get(pod.key, UNMEASURED).use) for pod in pods]
        listed = {pod.key for pod in pods}
        # Deleted a moment ago, or so new that the API server's word of it is still under way.
        self._unlisted = [pod.use for key, pod in use.pods.items() if key not in listed and not pod.offline]
        self._settled = {pod.key for pod in pods if pod.settled(wall, strategy.settle_seconds)}

    def system_used(self, resource: names.Resource) -> int | None:
        """Return what all but pods and offline work outside Kubernetes uses; None where unknown."""
        missing = [pod for pod, used in self.pods if pod.running_since is not None and used.of(resource) is None]
        system = self.use.system_use(resource, sum([pod.request[resource] for pod in missing]))
        return None if system is None else system + (self.use.host_high_priority.of(resource) or 0)

    def claims(self, resource: names.Resource) -> list[tuple[PodFacts | None, formula.Claim]]:
        """Return what each pod that batch work yields to holds; None stands for one that is measured but not listed."""
        is_cpu = resource == "cpu"
        held: list[tuple[PodFacts | None, formula.Claim]] = [
            (
                pod,
                formula.Claim(
                    request=pod.request[resource],
                    used=used.of(resource),
                    exclusive=pod.exclusive and is_cpu,
                    settled=pod.key in self._settled,
                ),
            )
            for pod, used in self.pods
            if pod.high_priority
        ]
        for used in self._unlisted:
            amount = used.of(resource)
            if amount is not None:
                held.append((None, formula.Claim(request=None, used=amount)))
        return held


def _mid(node: NodeFacts, view: View, resource: names.Resource, system: int) -> formula.Mid:
    strategy, use = view.strategy, view.use
    capacity, third_party = node.capacity[resource], node.third_party.get(names.MID[resource], 0)
    if strategy.mid_static:
        return formula.mid_static(capacity, strategy.mid_static_percent[resource], third_party)
    return formula.mid(
        capacity,
        reclaimable=use.reclaimable.of(resource),
        node_used=use.node.of(resource),
        mid_used=sum([used.of(resource) or 0 for pod, used in view.pods if pod.high_priority and not pod.prod]),
        system=max(system, node.reserved[resource]),
        prod_request=sum([pod.request[resource] for pod, _ in view.pods if pod.prod]),
        unallocated_percent=strategy.mid_unallocated_percent,
        cap_percent=strategy.mid_percent[resource],
        third_party=third_party,
    )
