"""What a scheduler's request may hold at most. Its names outlive it, in decisions that are bounded by number alone."""

from collections.abc import Collection

from cotenant.api.errors import BadRequest
from cotenant.api.objects import Pod

NAME_CHARACTERS = 253
"""Kubernetes takes no longer name."""
NODES = 100_000
"""Twenty times what Kubernetes is made for."""


def check(pod: Pod, names: Collection[str]) -> None:
    """Return if the names of the pod and of the nodes are such as Kubernetes gives.

    :raises BadRequest: if there are too many, or they are too long; of the nodes' the mean counts.
    """
    meta = pod.metadata
    if max(len(meta.name), len(meta.namespace), len(meta.uid)) > NAME_CHARACTERS:
        raise BadRequest(f"request body: the pod's name, namespace or uid has more than {NAME_CHARACTERS} characters")
    check_number(len(names))
    if len("".join(names)) > NAME_CHARACTERS * len(names):
        raise BadRequest(f"request body: a node's name has more than {NAME_CHARACTERS} characters")


def check_number(nodes: int) -> None:
    """Return if a request is about no more nodes than we answer for.

    :raises BadRequest: if it is.
    """
    if nodes > NODES:
        raise BadRequest(f"request body: {nodes} nodes, more than {NODES}")
