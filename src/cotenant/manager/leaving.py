"""After the programs are gone: what each node gave back, and what they left in the cluster.

The pods that restore a node are a DaemonSet; each says what it did in its termination message, which its status shows.
"""

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.api import marks, rollout
from cotenant.kube import errors
from cotenant.kube.client import CONFIG_MAPS, DAEMON_SETS, LEASES, NODES, PODS, REVISIONS, SECRETS, Client, Resource
from cotenant.units.clock import Clock

POLL_SECONDS = 1.0
PROGRAMS = "app.kubernetes.io/name=cotenant,app.kubernetes.io/component in (node,analyzer,scheduler,extender,manager)"
RESTORERS = "app.kubernetes.io/name=cotenant,app.kubernetes.io/component=restore"
DAEMON_SET = "cotenant-restore"
MESSAGE_PODS = 60
"""How many pods a message names: it may have 4,096 bytes."""
MADE = (
    (LEASES, ("cotenant-analyzer", "cotenant-scheduler", "cotenant-manager")),
    (SECRETS, ("cotenant-webhook-tls",)),
    (CONFIG_MAPS, ("cotenant-slo-config",)),
)
"""What the programs make for themselves in our namespace."""
ORDER_LABELS = (marks.MODE_LABEL, rollout.SLO_REVISION, rollout.RULES_LABEL)
FIELD_MANAGER = "cotenant-uninstall"


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What one node says of its restore."""

    restored: int = 0
    left: int = 0
    """Values that could not be given back."""
    pods: list[str] = []
    """The uids of pods that have to be made anew, the first of them."""
    more_pods: int = 0


def message_of(restored: int, left: int, pods: list[str]) -> bytes:
    """Return the message, small enough for a pod's status."""
    shown = pods[:MESSAGE_PODS]
    return msgspec.json.encode(
        Message(restored=restored, left=left, pods=shown, more_pods=len(pods) - len(shown)),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of all nodes."""

    restored: dict[str, Message]
    """By node."""
    unreached: dict[str, str]
    """Nodes that did not say that they are done, with what is known of them."""
    pods: list[str]
    """``NAMESPACE/NAME`` (or the uid) of pods that have to be made anew."""


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Terminated(msgspec.Struct, rename="camel"):
    message: str = ""
    exit_code: int = 0
    reason: str = ""


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct):
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None


class _Container(msgspec.Struct, rename="camel"):
    state: _State = msgspec.field(default_factory=_State)
    last_state: _State = msgspec.field(default_factory=_State)


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    init_container_statuses: list[_Container] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _DaemonSetStatus(msgspec.Struct, rename="camel"):
    desired_number_scheduled: int = 0
    observed_generation: int = 0


class _DaemonSet(msgspec.Struct):
    status: _DaemonSetStatus = msgspec.field(default_factory=_DaemonSetStatus)


async def wait_for_programs(client: Client, namespace: str, seconds: float, clock: Clock) -> list[str]:
    """Wait until no program of ours runs in the namespace any more; return the pods that still do.

    :raises KubeError: if pods cannot be listed.
    """
    deadline = clock.monotonic() + seconds
    while True:
        left = [pod.metadata.name for pod in await _pods(client, PROGRAMS, namespace)]
        if not left or clock.monotonic() >= deadline:
            return left
        await asyncio.sleep(POLL_SECONDS)


async def wait_for_nodes(client: Client, namespace: str, seconds: float, clock: Clock) -> Outcome:
    """Wait until every node that the DaemonSet is for has restored; return what is known in the end.

    :raises KubeError: if the DaemonSet or its pods cannot be read.
    """
    deadline = clock.monotonic() + seconds
    while True:
        found = await client.get(DAEMON_SETS, DAEMON_SET, _DaemonSet, namespace=namespace)
        restored, unreached = _sorted(await _pods(client, RESTORERS, namespace))
        whole = len(restored) >= found.status.desired_number_scheduled and found.status.observed_generation > 0
        if (whole and not unreached) or clock.monotonic() >= deadline:
            break
        await asyncio.sleep(POLL_SECONDS)
    wanted = [uid for message in restored.values() for uid in message.pods]
    names = await _names(client, set(wanted)) if wanted else {}
    return Outcome(restored=restored, unreached=unreached, pods=sorted(names.get(uid, uid) for uid in wanted))


def _sorted(pods: list[_Pod]) -> tuple[dict[str, Message], dict[str, str]]:
    """Return what nodes said, and of the others why they did not."""
    restored: dict[str, Message] = {}
    unreached: dict[str, str] = {}
    for pod in pods:
        node = pod.spec.node_name or pod.metadata.name
        state = next((one.state for one in pod.status.init_container_statuses), _State())
        last = next((one.last_state for one in pod.status.init_container_statuses), _State())
        if state.terminated is not None and state.terminated.exit_code == 0:
            restored[node] = _message(state.terminated.message)
            continue
        ended = state.terminated or last.terminated
        waiting = state.waiting.reason if state.waiting else ""
        unreached[node] = (ended.message or ended.reason if ended else "") or waiting or pod.status.phase or "Pending"
    return restored, unreached


def _message(text: str) -> Message:
    try:
        return msgspec.json.decode(text, type=Message)
    except msgspec.MsgspecError:
        return Message()


async def _names(client: Client, uids: set[str]) -> dict[str, str]:
    found = {}
    for pod in await _pods(client, "", None):
        if pod.metadata.uid in uids:
            found[pod.metadata.uid] = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return found


async def _pods(client: Client, selector: str, namespace: str | None) -> list[_Pod]:
    listed = client.every(PODS, _Pod, namespace=namespace, labelSelector=selector or None)
    return [pod async for pod in listed]


async def remove_made(client: Client, namespace: str) -> list[str]:
    """Delete what the programs made for themselves in our namespace, history included; return what was there.

    :raises KubeError: if something cannot be listed or deleted.
    """
    removed = []
    for resource, names in MADE:
        for name in names:
            removed += await _delete(client, resource, name, namespace)
    async for revision in client.every(REVISIONS, dict[str, Any], namespace=namespace):
        if _is_ours(revision):
            removed += await _delete(client, REVISIONS, str(revision["metadata"]["name"]), namespace)
    return removed


def _is_ours(revision: Mapping[str, Any]) -> bool:
    """Tell a revision of rules or strategies from those of DaemonSets, which their owner removes."""
    metadata = revision["metadata"]
    return not metadata.get("ownerReferences") and any(
        key.startswith("cotenant.io/") for key in metadata.get("labels") or ()
    )


async def _delete(client: Client, resource: Resource, name: str, namespace: str) -> list[str]:
    try:
        await client.delete(resource, name, namespace=namespace)
    except errors.NotFound:
        return []
    return [f"{resource.plural}/{name}"]


async def take_labels(client: Client) -> list[str]:
    """Take the labels that say what a node's agent and manager were to do off all nodes; return which had some.

    :raises KubeError: if nodes cannot be listed or written.
    """
    done = []
    async for node in client.every(NODES, dict[str, Any]):
        metadata = node["metadata"]
        had = [key for key in ORDER_LABELS if key in (metadata.get("labels") or {})]
        if had:
            patch = {"metadata": {"labels": dict.fromkeys(had)}}
            await client.patch(NODES, metadata["name"], patch, field_manager=FIELD_MANAGER)
            done.append(str(metadata["name"]))
    return done
