"""A running Koordinator's objects, read once: what `cotenant check --koordinator` compares."""

import dataclasses
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import msgspec

from cotenant.act import migration
from cotenant.kube import errors
from cotenant.kube.client import DAEMON_SETS, NODE_SLOS, NODES, PODS, REPORTS, Client, Resource
from cotenant.manager.overcommit.pods import FINISHED
from cotenant.manager.webhook import registration, validation
from cotenant.model import pod as pods
from cotenant.model import pod_list, policy
from cotenant.model.node import CPU_NORMALIZATION_ANNOTATION, cpu_normalization
from cotenant.model.priority import NAMES

KOORDLET = "koordlet"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeChanges:
    """What would change on one node; ``problem`` says what of its NodeSLO could not be read."""

    node: str
    interface: migration.Interface | None
    changes: tuple[migration.Change, ...]
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    """What a cluster has of Koordinator. ``gates`` None: no koordlet DaemonSet was found."""

    slos: Mapping[str, Mapping[str, Any]]
    pods: Mapping[str, tuple[pods.Pod, ...]]
    interfaces: Mapping[str, migration.Interface]
    gates: Mapping[str, bool] | None
    image: str = ""
    ratios: Mapping[str, Fraction] = dataclasses.field(default_factory=dict)
    """CPU normalization ratios by node; 1 for one that is not here."""
    turned_away: Mapping[str, tuple[migration.Change, ...]] = dataclasses.field(default_factory=dict)
    """Running pods by node whose like our webhook refuses, and Koordinator's lets through."""

    def nodes(self, only: str = "") -> tuple[NodeChanges, ...]:
        """Return what would change on each node that has a NodeSLO (or on the only one asked for), by name."""
        return tuple(self._node(name) for name in sorted(self.slos) if not only or name == only)

    def _node(self, name: str) -> NodeChanges:
        written = self.slos[name]
        interface = self.interfaces.get(name)
        try:
            slo, complaints = policy.decode(written, f"nodeslo/{name}")
        except policy.BadPolicy as error:
            return NodeChanges(name, interface, (), str(error))
        found = migration.changes(
            slo,
            written,
            self.pods.get(name, ()),
            interface,
            self.gates or migration.GATES,
            self.ratios.get(name, Fraction(1)),
        )
        found = migration.ordered([*found, *self.turned_away.get(name, ())])
        return NodeChanges(name, interface, found, "; ".join(complaints))


async def read(client: Client) -> Running:
    """Return what there is of Koordinator.

    :raises KubeError: if the API server does not answer, or a list is refused; kinds that do not exist are empty.
    """
    slos = {str(item["metadata"]["name"]): item async for item in _items(client, NODE_SLOS)}
    interfaces = {}
    async for report in _items(client, REPORTS):
        facts = (report.get("status") or {}).get("nodeFacts") or {}
        found = next((name for name in NAMES if name == facts.get("priorityInterface")), None)
        if found is not None:
            irreversible = (facts.get("check") or {}).get("irreversible")
            interfaces[str(report["metadata"]["name"])] = migration.Interface(found, irreversible)
    gates, image = None, ""
    async for one in _items(client, DAEMON_SETS):
        if one["metadata"]["name"] == KOORDLET:
            containers = one["spec"]["template"]["spec"]["containers"]
            container = next((each for each in containers if each.get("name") == KOORDLET), containers[0])
            gates = migration.gates_of([*(container.get("command") or []), *(container.get("args") or [])])
            image = str(container.get("image", ""))
    ratios = {}
    async for node in _items(client, NODES):
        text = (node["metadata"].get("annotations") or {}).get(CPU_NORMALIZATION_ANNOTATION)
        ratios[str(node["metadata"]["name"])] = cpu_normalization(text)[0]
    by_node: dict[str, list[dict[str, Any]]] = {}
    async for item in _items(client, PODS):
        node_name = str((item.get("spec") or {}).get("nodeName") or "")
        if node_name:
            by_node.setdefault(node_name, []).append(item)
    return Running(
        slos,
        {
            name: pod_list.decode(msgspec.json.encode({"items": items}), f"the pods of node {name}")
            for name, items in by_node.items()
        },
        interfaces,
        gates,
        image,
        ratios,
        {name: tuple(_turned_away(items)) for name, items in by_node.items()},
    )


def _turned_away(items: Iterable[Mapping[str, Any]]) -> Iterator[migration.Change]:
    for item in items:
        metadata, phase = item.get("metadata") or {}, (item.get("status") or {}).get("phase")
        if phase in FINISHED or metadata.get("deletionTimestamp") or metadata.get("namespace") in registration.EXEMPT:
            continue
        key = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
        for problem in validation.problems(item):
            text = f"runs on; a new one like it is refused by the manager's webhook: {problem}"
            yield migration.Change("differs", key, text)


async def _items(client: Client, resource: Resource) -> AsyncIterator[dict[str, Any]]:
    """Yield all objects of a kind; none where the kind does not exist."""
    try:
        async for item in client.every(resource, dict[str, Any]):
            yield item
    except errors.NotFound:
        return
