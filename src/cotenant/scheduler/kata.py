"""Kata readiness: whether a node can run a pod whose runtime is a Kata one. Unknown passes.

In order: the RuntimeClass's node selector, the label that kata-deploy keeps, Node Ready, the handlers that the
container runtime lists, and the agent's own findings on the host (a label can say yes while containerd has no handler).
"""

from collections.abc import Mapping

from cotenant.api.objects import Node, RuntimeClass
from cotenant.api.reading import Row

READY_LABEL = "katacontainers.io/kata-runtime"
"""kata-deploy sets it to ``true`` when a node is ready and to ``false`` while it is not."""


def is_kata_handler(handler: str) -> bool:
    """Tell whether a RuntimeClass's handler is a Kata one."""
    return handler == "kata" or handler.startswith("kata-")


def asks_for_kata(runtime_class_name: str | None, runtime_classes: Mapping[str, RuntimeClass] | None) -> bool:
    """Tell whether a pod's runtime is a Kata one: by its RuntimeClass's handler, without the object by its name."""
    if not runtime_class_name:
        return False
    known = (runtime_classes or {}).get(runtime_class_name)
    return is_kata_handler(known.handler) if known is not None else runtime_class_name.startswith("kata")


def fault_of(runtime_class: RuntimeClass | None, node: Node | None, row: Row | None) -> str | None:
    """Return why the node cannot run the pod, or None where it can or nobody knows.

    ``row`` is the node's report while it holds.
    """
    handler = runtime_class.handler if runtime_class is not None else None
    selector = (
        runtime_class.scheduling.node_selector if runtime_class is not None and runtime_class.scheduling else None
    )
    return (node and _node_fault(node, handler, selector or {})) or (row and _host_fault(row, handler)) or None


def _node_fault(node: Node, handler: str | None, selector: Mapping[str, str]) -> str | None:
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return "node is outside the RuntimeClass's nodeSelector"
    if not selector and labels.get(READY_LABEL) == "false":
        return f"label {READY_LABEL} is false"
    if any(condition.type == "Ready" and condition.status != "True" for condition in node.status.conditions or ()):
        return "node is not Ready"
    offered = node.status.runtime_handlers
    if handler is not None and offered and all(entry.name != handler for entry in offered):
        return f"container runtime offers no handler {handler}"
    return None


def _host_fault(row: Row, handler: str | None) -> str | None:
    if row.kata_faults:
        return f"host lacks {', '.join(row.kata_faults)}"
    if handler is not None and row.kata_handlers is not None and handler not in row.kata_handlers:
        return f"container runtime's configuration has no handler {handler}"
    return None
