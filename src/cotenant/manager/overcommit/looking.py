"""One look at a cluster: the objects of a node from which overcommit is worked out."""

from typing import Any

import msgspec

from cotenant.api.koordinator import node_metric, slo_config
from cotenant.kube import errors
from cotenant.kube.client import CONFIG_MAPS, NODE_METRICS, NODES, PODS, Client
from cotenant.manager.controller import Place
from cotenant.manager.overcommit import cluster, nodes, pods, statement, strategy
from cotenant.units.clock import Clock


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
    listed: list[pods.PodObject] = []
    next_page: str | None = None
    while True:
        page = await client.page(PODS, fieldSelector=f"spec.nodeName={name}", limit=500, continue_=next_page)
        listed += [msgspec.json.decode(item, type=pods.PodObject) for item in page.items]
        next_page = page.next_page or None
        if next_page is None:
            break
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
    receiver = cluster.Metrics(lambda _: None)
    if metric is not None:
        receiver.put(facts.name, metric)
    bound = [pod for one in listed if (pod := pods.decode(one)) is not None and pod.node == facts.name]
    heard = cluster.heard(facts, None, receiver.reported.get(facts.name), clock)
    return statement.of(facts, bound, heard, resolved, clock.wall())


async def _or_none(asking: Any) -> Any:
    try:
        return await asking
    except errors.NotFound:
        return None
