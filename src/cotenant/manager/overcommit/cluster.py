"""What overcommit knows of the cluster now, node by node, from its watches and from the analyzer's table."""

import dataclasses
import logging
from collections.abc import Callable

from cotenant.api.koordinator import node_metric
from cotenant.manager.overcommit import consumption, nodes, pods, zones
from cotenant.manager.overcommit.account import Heard
from cotenant.manager.overcommit.consumption import Consumption
from cotenant.manager.overcommit.feed import Told
from cotenant.manager.overcommit.nodes import NodeFacts
from cotenant.manager.overcommit.pods import PodFacts
from cotenant.manager.overcommit.zones import ZoneFacts
from cotenant.units import quantity
from cotenant.units.clock import Clock
from cotenant.units.malformed import MALFORMED

_log = logging.getLogger(__name__)

STREAM_SECONDS = 30.0
"""A row of the analyzer's table as new as this is the node's use; an older one only where nothing newer is known."""

Touch = Callable[[str], None]
"""Called with the name of a node about which something has changed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reported:
    """What a NodeMetric says, and how old that is."""

    use: Consumption
    updated_at: float
    """By the node's wall clock."""
    seen_at: float
    """By our monotonic clock."""
    is_seen_to_change: bool
    """It changed before our eyes, so that it was new when we saw it, whatever the node takes for the time."""

    def age_seconds(self, clock: Clock) -> float:
        """Return how old it is: since we saw it change, else by the clocks of both sides."""
        since_seen = clock.monotonic() - self.seen_at
        return since_seen if self.is_seen_to_change else max(clock.wall() - self.updated_at, since_seen)


class Nodes:
    """The receiver of Nodes. One that cannot be understood keeps what it was, and is named."""

    def __init__(self, touch: Touch) -> None:
        self._touch = touch
        self.facts: dict[str, NodeFacts] = {}
        self.problems: dict[str, str] = {}
        """Why a node's values are left as they are."""

    def replaced(self, objects: dict[str, nodes.NodeObject]) -> None:
        for name in set(self.facts) - set(objects):
            self.removed(name)
        for name, value in objects.items():
            self.put(name, value)

    def put(self, key: str, value: nodes.NodeObject) -> None:
        try:
            self.facts[key] = nodes.decode(value)
            self.problems.pop(key, None)
        except nodes.BadNode as error:
            if self.problems.get(key) != str(error):
                _log.warning("%s; what is published there stays as it is", error)
            self.problems[key] = str(error)
        self._touch(key)

    def removed(self, key: str) -> None:
        self.facts.pop(key, None)
        self.problems.pop(key, None)
        self._touch(key)


class Pods:
    """The receiver of Pods: those that are bound, by node."""

    def __init__(self, touch: Touch) -> None:
        self._touch = touch
        self._node_of: dict[str, str] = {}
        self._by_node: dict[str, dict[str, PodFacts]] = {}

    def on(self, node: str) -> list[PodFacts]:
        """Return the pods that are bound to a node."""
        return list(self._by_node.get(node, {}).values())

    def asked(self, resource: str) -> int:
        """Return what all pods together ask for of a resource that is published."""
        held = (pod for by_key in self._by_node.values() for pod in by_key.values())
        return sum(pod.extended.get(resource, 0) for pod in held)

    def replaced(self, objects: dict[str, pods.PodObject]) -> None:
        for key in set(self._node_of) - set(objects):
            self.removed(key)
        for key, value in objects.items():
            self.put(key, value)

    def put(self, key: str, value: pods.PodObject) -> None:
        try:
            facts = pods.decode(value)
        except quantity.BadQuantity as error:
            _log.warning("pod %s: %s; it is counted as it was", key, error)
            return
        known = self._by_node.get(self._node_of.get(key, ""), {}).get(key)
        if facts == known:
            return
        self.removed(key)
        if facts is not None:
            self._node_of[key] = facts.node
            self._by_node.setdefault(facts.node, {})[key] = facts
            self._touch(facts.node)

    def removed(self, key: str) -> None:
        node = self._node_of.pop(key, None)
        if node is None:
            return
        held = self._by_node[node]
        del held[key]
        if not held:
            del self._by_node[node]
        self._touch(node)


class Metrics:
    """The receiver of NodeMetrics."""

    def __init__(self, touch: Touch, clock: Clock) -> None:
        self._touch = touch
        self._clock = clock
        self.reported: dict[str, Reported] = {}

    def replaced(self, objects: dict[str, node_metric.NodeMetric]) -> None:
        for name in set(self.reported) - set(objects):
            self.removed(name)
        for name, value in objects.items():
            self._take(name, value, is_seen_to_change=False)  # who knows when, while we did not look

    def put(self, key: str, value: node_metric.NodeMetric) -> None:
        self._take(key, value, is_seen_to_change=key in self.reported)

    def _take(self, key: str, value: node_metric.NodeMetric, is_seen_to_change: bool) -> None:
        updated_at = consumption.updated_at(value.status)
        known = self.reported.get(key)
        if updated_at is None or (known is not None and known.updated_at == updated_at):
            return
        try:
            use = consumption.of_node_metric(value.status)
        except quantity.BadQuantity as error:
            _log.warning("nodemetric/%s: %s; the last one counts", key, error)
            return
        self.reported[key] = Reported(use, updated_at, self._clock.monotonic(), is_seen_to_change)
        self._touch(key)

    def removed(self, key: str) -> None:
        if self.reported.pop(key, None) is not None:
            self._touch(key)


class Topologies:
    """The receiver of NodeResourceTopologies."""

    def __init__(self, touch: Touch) -> None:
        self._touch = touch
        self.facts: dict[str, ZoneFacts] = {}

    def replaced(self, objects: dict[str, zones.TopologyObject]) -> None:
        for name in set(self.facts) - set(objects):
            self.removed(name)
        for name, value in objects.items():
            self.put(name, value)

    def put(self, key: str, value: zones.TopologyObject) -> None:
        try:
            self.facts[key] = zones.decode(value)
        except (quantity.BadQuantity, KeyError, *MALFORMED) as error:
            self.facts.pop(key, None)
            _log.warning("noderesourcetopology/%s: %s; its zones are left as they are", key, error)
            return
        self._touch(key)

    def removed(self, key: str) -> None:
        self.facts.pop(key, None)


def heard(node: NodeFacts, told: Told | None, reported: Reported | None, clock: Clock) -> Heard | None:
    """Return the newest that is known of a node's use; None where nothing ever was.

    The stream is the source while it flows, and the NodeMetric where it does not: Koordinator's own agents have no
    stream. What prod work is predicted not to need comes by NodeMetric in any case.
    """
    by_metric = None
    if reported is not None:
        by_metric = Heard(reported.use, reported.age_seconds(clock))
    if told is None:
        return by_metric
    age = clock.monotonic() - told.at
    if age > STREAM_SECONDS and by_metric is not None and by_metric.age_seconds < age:
        return by_metric
    use = consumption.of_row(told.row, node.capacity["memory"])
    if reported is not None:
        use = dataclasses.replace(use, reclaimable=reported.use.reclaimable)
    return Heard(use, age)
