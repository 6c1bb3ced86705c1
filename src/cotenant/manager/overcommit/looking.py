"""One look at a cluster: what a node offers and why, and everything taken back before an uninstall."""

import dataclasses
from typing import Any, TypeVar

import msgspec

from cotenant.api.koordinator import node_metric, slo_config
from cotenant.kube import errors
from cotenant.kube.client import CONFIG_MAPS, NODE_METRICS, NODES, PODS, TOPOLOGIES, Client, Resource
from cotenant.manager.controller import FIELD_MANAGER, Place
from cotenant.manager.overcommit import cluster, names, nodes, pods, publication, statement, strategy, zones
from cotenant.units.clock import Clock

Object = TypeVar("Object")


class _ConfigMap(msgspec.Struct, frozen=True, kw_only=True):
    data: dict[str, str] | None = None


async def look(client: Client, name: str, config: Place, clock: Clock) -> statement.Statement:
    """Return the statement of a node of the cluster.

    Its use is what its NodeMetric says: the stream is the manager's alone.

    :raises NotFound: if there is no such node.
    :raises KubeError: if something cannot be read.
    :raises CotenantError: if an object is not understood.
    """
    node = await client.get(NODES, name, nodes.NodeObject)
    listed = await _listed(client, PODS, pods.PodObject, fieldSelector=f"spec.nodeName={name}")
    metric = await _or_none(client.get(NODE_METRICS, name, node_metric.NodeMetric))
    written = await _or_none(client.get(CONFIG_MAPS, config.name, _ConfigMap, namespace=config.namespace))
    return state(node, listed, metric, (written.data if written is not None else None) or {}, clock)


def state(
    node: nodes.NodeObject,
    listed: list[pods.PodObject],
    metric: node_metric.NodeMetric | None,
    config: dict[str, str],
    clock: Clock,
) -> statement.Statement:
    """Return the statement of a node by its objects and the ConfigMap's data.

    :raises CotenantError: if one of them is not understood.
    """
    facts = nodes.decode(node)
    read, wrong = slo_config.read(config, slo_config.SloConfig())
    resolved = strategy.of(read.of("colocation-config", facts.labels), facts.labels, facts.annotations)
    told = wrong.get("colocation-config")
    if told is not None:
        resolved = strategy.Resolved(resolved.strategy, (told, *resolved.problems))
    receiver = cluster.Metrics(lambda _: None, clock)
    if metric is not None:
        receiver.put(facts.name, metric)
    bound = [pod for one in listed if (pod := pods.decode(one)) is not None and pod.node == facts.name]
    heard = cluster.heard(facts, None, receiver.reported.get(facts.name), clock)
    return statement.of(facts, bound, heard, resolved, clock.wall())


@dataclasses.dataclass(frozen=True, slots=True)
class Cleared:
    """Nodes that offer nothing of the kind any more, and those that still do to pods that are there."""

    cleared: list[str]
    kept: list[str]


async def clear(client: Client) -> Cleared:
    """Take back what is offered on every node, as if co-location were switched off: pods that run keep what they have.

    :raises KubeError: if something cannot be read or written.
    """
    on: dict[str, list[pods.PodFacts]] = {}
    for one in await _listed(client, PODS, pods.PodObject):
        facts = pods.decode(one)
        if facts is not None:
            on.setdefault(facts.node, []).append(facts)
    done = Cleared([], [])
    for value in await _listed(client, NODES, nodes.NodeObject):
        name = value.metadata.name
        published, torn = nodes.published(value.status.capacity or {}, value.status.allocatable or {})
        origin = (value.metadata.annotations or {}).get(names.ORIGIN_ANNOTATION)
        left = publication.drained(published, on.get(name, []))
        body = publication.patch(published, left, torn, None, origin)
        if body is not None:
            await client.patch(NODES, name, body, subresource="status", field_manager=FIELD_MANAGER)
        if left:
            done.kept.append(name)
        elif body is not None:
            done.cleared.append(name)
    for topology in await _or_none(_listed(client, TOPOLOGIES, zones.TopologyObject)) or ():
        if topology.metadata.name not in done.kept:
            facts_of_zones = zones.decode(topology)
            change = zones.patch(facts_of_zones, {zone.name: {} for zone in facts_of_zones.zones})
            if change is not None:
                await client.patch(TOPOLOGIES, topology.metadata.name, change, field_manager=FIELD_MANAGER)
    return done


async def _listed(client: Client, resource: Resource, kind: type[Object], **chosen: str) -> list[Object]:
    return [item async for item in client.every(resource, kind, **chosen)]


async def _or_none(asking: Any) -> Any:
    try:
        return await asking
    except errors.NotFound:
        return None
