"""kube-scheduler's extender protocol: ExtenderArgs, ExtenderPreemptionArgs and their answers.

The scheduler sends either the nodes in full (``Nodes``) or, with ``nodeCacheCapable``, their names (``NodeNames``),
and wants the answer in the same form. Keys are Go's field names, in any case.
"""

import msgspec

from cotenant.api import extender_bounds, folding
from cotenant.api.errors import BadRequest
from cotenant.api.folding import Key, spelled
from cotenant.api.objects import Node, ObjectMeta, Pod

_EMPTY_OBJECT = msgspec.Raw(b"{}")


class NodeList(msgspec.Struct, kw_only=True):
    """Nodes in full, each kept as it was sent, so that the answer gives back what it does not understand."""

    metadata: msgspec.Raw = _EMPTY_OBJECT
    items: list[msgspec.Raw] | None = None


class ExtenderArgs(msgspec.Struct, kw_only=True, rename="pascal"):
    """The body of filter and prioritize."""

    pod: Pod | None = None
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """The pod and the nodes of one request. ``nodes`` and ``raw`` are by name, None where only names were sent."""

    pod: Pod
    names: list[str]
    nodes: dict[str, Node] | None = None
    raw: dict[str, msgspec.Raw] | None = None
    list_metadata: msgspec.Raw = _EMPTY_OBJECT


class FilterResult(msgspec.Struct, kw_only=True, rename="pascal"):
    """The answer to filter. A node in ``failed_and_unresolvable_nodes`` is not retried by evicting its pods."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    """One node's score, a whole number in 0..10."""

    host: str
    score: int


class MetaPod(msgspec.Struct, frozen=True, kw_only=True, rename={"uid": "UID"}):
    """A victim by its identity."""

    uid: str = ""


class MetaVictims(msgspec.Struct, frozen=True, kw_only=True, rename={"pods": "Pods", "violations": "NumPDBViolations"}):
    """The victims of one node by their identity."""

    pods: list[MetaPod] | None = None
    violations: int = 0


class VictimPod(msgspec.Struct, frozen=True, kw_only=True):
    """A victim sent in full."""

    metadata: ObjectMeta = ObjectMeta()


class Victims(msgspec.Struct, frozen=True, kw_only=True, rename={"pods": "Pods", "violations": "NumPDBViolations"}):
    """The victims of one node in full."""

    pods: list[VictimPod] | None = None
    violations: int = 0


class ExtenderPreemptionArgs(msgspec.Struct, kw_only=True, rename="pascal"):
    """The body of preempt: the nodes on which victims would make room, and who they are."""

    pod: Pod | None = None
    node_name_to_victims: dict[str, Victims | None] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims | None] | None = None


class PreemptionCandidates(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that waits and the victims of each node, always by their identity."""

    pod: Pod
    victims: dict[str, MetaVictims]


class ExtenderPreemptionResult(msgspec.Struct, kw_only=True, rename="pascal"):
    """The answer to preempt: the nodes that remain. The scheduler reads no other form, whichever it sent."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


_ARGS_KEYS = spelled("Pod", "NodeNames", nodes=Key("Nodes", keys=spelled("items", "metadata")))
_PREEMPTION_KEYS = spelled(
    "Pod",
    victims=Key("NodeNameToVictims", each=spelled("Pods", "NumPDBViolations")),
    meta=Key(
        "NodeNameToMetaVictims", each=spelled("NumPDBViolations", pods=Key("Pods", each=spelled("UID")))
    ),
)  # fmt: skip
_args_decoder = msgspec.json.Decoder(ExtenderArgs)
_preemption_decoder = msgspec.json.Decoder(ExtenderPreemptionArgs)
_node_decoder = msgspec.json.Decoder(Node)
_encoder = msgspec.json.Encoder()


def decode_args(body: bytes) -> Candidates:
    """Return the pod and the candidate nodes of a filter or prioritize request, in the order sent.

    :raises BadRequest: if the body is malformed, or has no pod, or neither nodes nor names, or too many of them.
    """
    args = folding.decode(body, _args_decoder)
    if args.pod is None or (args.node_names is None and (args.nodes is None or args.nodes.items is None)):
        args = folding.decode_folded(body, _args_decoder, _ARGS_KEYS)
    if args.pod is None:
        raise BadRequest("request body: no Pod")
    if args.nodes is None:
        if args.node_names is None:
            raise BadRequest("request body: neither Nodes nor NodeNames")
        extender_bounds.check(args.pod, args.node_names)
        return Candidates(pod=args.pod, names=args.node_names)
    extender_bounds.check_number(len(args.nodes.items or ()))
    nodes: dict[str, Node] = {}
    raw: dict[str, msgspec.Raw] = {}
    for position, item in enumerate(args.nodes.items or ()):
        node = folding.decode(bytes(item), _node_decoder)
        if not node.metadata.name:
            raise BadRequest(f"request body: Nodes.items[{position}] has no name")
        nodes[node.metadata.name] = node
        raw[node.metadata.name] = item
    extender_bounds.check(args.pod, nodes)
    return Candidates(pod=args.pod, names=list(nodes), nodes=nodes, raw=raw, list_metadata=args.nodes.metadata)


def encode_filter(candidates: Candidates, refused: dict[str, str]) -> bytes:
    """Return the answer that keeps every candidate but the refused ones, in the form in which they were sent."""
    kept = [name for name in candidates.names if name not in refused] if refused else candidates.names
    result = FilterResult(failed_and_unresolvable_nodes=refused)
    if candidates.raw is None:
        result.node_names = kept
    else:
        result.nodes = NodeList(metadata=candidates.list_metadata, items=[candidates.raw[name] for name in kept])
    return _encoder.encode(result)


def encode_priorities(names: list[str], scores: list[int]) -> bytes:
    """Return the answer that gives each name its score."""
    return _encoder.encode(list(map(HostPriority, names, scores)))


def decode_preemption(body: bytes) -> PreemptionCandidates:
    """Return the pod and the victims by node of a preempt request.

    :raises BadRequest: if the body is malformed, or has no pod, or no victims in either form, or too many nodes.
    """
    found = _victims_of(body)
    extender_bounds.check(found.pod, found.victims)
    return found


def _victims_of(body: bytes) -> PreemptionCandidates:
    args = folding.decode(body, _preemption_decoder)
    extender_bounds.check_number(len(args.node_name_to_meta_victims or args.node_name_to_victims or ()))
    if args.pod is None or not _names_victims(args):
        args = folding.decode_folded(body, _preemption_decoder, _PREEMPTION_KEYS)
    if args.pod is None:
        raise BadRequest("request body: no Pod")
    if args.node_name_to_meta_victims is not None:
        by_node = args.node_name_to_meta_victims
        return PreemptionCandidates(
            pod=args.pod, victims={node: victims or MetaVictims(pods=[]) for node, victims in by_node.items()}
        )
    if args.node_name_to_victims is None:
        raise BadRequest("request body: neither NodeNameToVictims nor NodeNameToMetaVictims")
    return PreemptionCandidates(
        pod=args.pod, victims={node: _identities(victims) for node, victims in args.node_name_to_victims.items()}
    )


def _names_victims(args: ExtenderPreemptionArgs) -> bool:
    """Tell whether every node comes with its victims, spelled as expected."""
    if args.node_name_to_meta_victims is not None:
        by_node = args.node_name_to_meta_victims.values()
        return all(victims is not None and victims.pods and all(pod.uid for pod in victims.pods) for victims in by_node)
    in_full = args.node_name_to_victims
    return in_full is not None and all(victims is not None and victims.pods for victims in in_full.values())


def _identities(victims: Victims | None) -> MetaVictims:
    if victims is None:
        return MetaVictims(pods=[])
    return MetaVictims(
        pods=[MetaPod(uid=pod.metadata.uid) for pod in victims.pods or ()], violations=victims.violations
    )


def encode_preemption(candidates: PreemptionCandidates, refused: dict[str, str]) -> bytes:
    """Return the answer that keeps every node but the refused ones, with their victims as sent."""
    kept = {node: victims for node, victims in candidates.victims.items() if node not in refused}
    return _encoder.encode(ExtenderPreemptionResult(node_name_to_meta_victims=kept))
