"""Volcano's extender protocol: predicate (one task, one node) and prioritize (one task, its nodes).

Bodies are Volcano's Go structures, with every pod of a node in full: only the task's pod and the nodes' own objects
are decoded. In the predicate answer the reason is called ``status``, and a node fits when it is empty, whatever the
code; a reason with a code that Volcano does not know is taken for a yes as well.
"""

from collections.abc import Iterable

import msgspec

from cotenant.api import extender_bounds, folding
from cotenant.api.errors import BadRequest
from cotenant.api.folding import Key, spelled
from cotenant.api.objects import Node, ObjectMeta, Pod

SUCCESS = 0
UNSCHEDULABLE_AND_UNRESOLVABLE = 3


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A pod as Volcano holds it."""

    name: str = ""
    namespace: str = ""
    pod: Pod | None = None


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A node as Volcano holds it."""

    name: str = ""
    node: Node | None = None


class PredicateRequest(msgspec.Struct, kw_only=True):
    """May this task run on this node?"""

    task: TaskInfo | None = None
    node: NodeInfo | None = None


class PrioritizeRequest(msgspec.Struct, kw_only=True):
    """How good is each node for this task?"""

    task: TaskInfo | None = None
    nodes: list[NodeInfo | None] | None = None


class PredicateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``status`` empty: the node fits. Else the reason why not, with a code that must be a number Volcano knows."""

    status: str = ""
    code: int = SUCCESS


class PrioritizeAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Scores by node. Without the map, or with any message, Volcano leaves the pod pending, ``ignorable`` or not."""

    node_score: dict[str, float]
    error_message: str = ""


_TASK = Key("task", keys=spelled("Name", "Namespace", "Pod"))
_NODE_KEYS = spelled("Name", "Node")
_PREDICATE_KEYS = spelled(task=_TASK, node=Key("node", keys=_NODE_KEYS))
_PRIORITIZE_KEYS = spelled(task=_TASK, nodes=Key("nodes", each=_NODE_KEYS))
_predicate_decoder = msgspec.json.Decoder(PredicateRequest)
_prioritize_decoder = msgspec.json.Decoder(PrioritizeRequest)
_encoder = msgspec.json.Encoder()


def pod_of(task: TaskInfo) -> Pod:
    """Return the task's pod; where Volcano sent none, one with the task's name and nothing else known."""
    if task.pod is not None:
        return task.pod
    return Pod(metadata=ObjectMeta(name=task.name, namespace=task.namespace))


def decode_predicate(body: bytes) -> tuple[Pod, NodeInfo]:
    """Return the pod and the one node of a predicate request.

    :raises BadRequest: if the body is malformed, or has no task, or no node with a name, or too long a one.
    """
    request = folding.decode(body, _predicate_decoder)
    if request.task is None or request.task.pod is None or request.node is None or not request.node.name:
        request = folding.decode_folded(body, _predicate_decoder, _PREDICATE_KEYS)
    if request.task is None:
        raise BadRequest("request body: no task")
    if request.node is None or not request.node.name:
        raise BadRequest("request body: no node with a Name")
    pod = pod_of(request.task)
    extender_bounds.check(pod, [request.node.name])
    return pod, request.node


def decode_prioritize(body: bytes) -> tuple[Pod, list[NodeInfo]]:
    """Return the pod and the candidate nodes of a prioritize request.

    :raises BadRequest: if the body is malformed, or has no task, or a node has no name, or there are too many.
    """
    request = folding.decode(body, _prioritize_decoder)
    if request.task is None or request.task.pod is None or request.nodes is None or not _are_named(request.nodes):
        request = folding.decode_folded(body, _prioritize_decoder, _PRIORITIZE_KEYS)
    if request.task is None:
        raise BadRequest("request body: no task")
    nodes = [node for node in request.nodes or () if node is not None]
    if not _are_named(nodes):
        raise BadRequest("request body: a node without a Name")
    pod = pod_of(request.task)
    extender_bounds.check(pod, [node.name for node in nodes])
    return pod, nodes


def _are_named(nodes: Iterable[NodeInfo | None]) -> bool:
    return all(node is None or node.name for node in nodes)


def encode_predicate(reason: str | None) -> bytes:
    """Return the answer: the node fits without a reason; with one it does not, and evicting its pods would not help."""
    if not reason:
        return _encoder.encode(PredicateAnswer())
    return _encoder.encode(PredicateAnswer(status=reason, code=UNSCHEDULABLE_AND_UNRESOLVABLE))


def encode_prioritize(scores: dict[str, float]) -> bytes:
    """Return the answer that gives each node its score."""
    return _encoder.encode(PrioritizeAnswer(node_score=scores))
