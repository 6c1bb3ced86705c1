"""Nodes that do not exist: their samples, for tests of the stream, the analyzer and schedulers at scale."""

import asyncio
import dataclasses
import random
import time
from collections.abc import Callable, Mapping

import msgspec

from cotenant.api.marks import MODE_LABEL
from cotenant.api.objects import Node
from cotenant.api.report import AgentCounts, NodeCheck, NodeFacts
from cotenant.api.rollout import SLO_REVISION
from cotenant.kube import channel
from cotenant.kube.client import NODES, Client
from cotenant.kube.informer import Informer
from cotenant.model import sample
from cotenant.model.priority import InterfaceName
from cotenant.node.policy import MODES
from cotenant.node.sending import Identity, Sender


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many nodes, what they are called, how many are noisy, and what their hosts offer."""

    count: int
    prefix: str = "node-"
    first: int = 0
    noisy_ratio: float = 0.0
    seed: int = 1
    address: str = "127.0.0.1:7443"
    open_channel: channel.OpenChannel = channel.open_plaintext
    interfaces: tuple[InterfaceName, ...] = ("mainline-idle",)
    """The priority interfaces that their agents find, in turn."""
    noisy_when: tuple[str, str] | None = None
    """A label of the Node with which it is noisy."""
    kata: bool | None = None
    """Whether the hosts have what Kata containers need; None: nobody looked."""


class SimulatedNode:
    """One node's samples: calm, or with a disk that cannot keep up and tasks that stall on it."""

    def __init__(self, name: str, noisy: bool, seed: int) -> None:
        self.name = name
        self.noisy = noisy
        self.interface: InterfaceName = "mainline-idle"
        self.kata: bool | None = None
        self._random = random.Random(f"{seed}/{name}")
        self._boot_id = f"simulated-{name}"

    def facts(self, labels: Mapping[str, str]) -> NodeFacts:
        """Return what the node's agent would say of itself while its Node has these labels."""
        wanted = labels.get(MODE_LABEL)
        return NodeFacts(
            mode=next((mode for mode in MODES if mode == wanted), "observe"),
            slo_revision=labels.get(SLO_REVISION),
            priority_interface=self.interface,
            kata=None if self.kata is None else dict.fromkeys(("kvm", "virtualisation", "vhostVsock"), self.kata),
            check=NodeCheck(irreversible=self.interface.startswith("openeuler")),
            counts=AgentCounts(started_at=self._boot_id),
        )

    def sample(self, uptime_s: float, wall: float) -> sample.Sample:
        """Return the sample of the second that ends now."""
        around = self._random.uniform(0.8, 1.2)
        stalled = 0.7 * around if self.noisy else 0.01 * around
        latency = 120_000.0 * around if self.noisy else 800.0 * around
        return sample.Sample(
            node=self.name,
            boot_id=self._boot_id,
            uptime_s=uptime_s,
            time=time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(wall)),
            period_s=1.0,
            psi=sample.Psi(
                cpu_some_ratio=0.02 * around,
                memory_some_ratio=0.0,
                memory_full_ratio=0.0,
                io_some_ratio=stalled,
                io_full_ratio=stalled / 2,
            ),
            block=sample.Block(
                source="diskstats", completions=200, p50_usec=latency / 8, p95_usec=latency / 2, p99_usec=latency
            ),
            memory=sample.Memory(available_ratio=0.6 * around, page_scan_per_sec=0.0, major_fault_per_sec=0.0),
            cpu=sample.Cpu(
                source="stat",
                online=8,
                used_ratio=0.3 * around,
                steal_ratio=0.0,
                run_queue_latency_p99_usec=300 * around,
            ),
            missing={"llc": "no_pmu", "online": "no_class"},
        )


class _Labels:
    """The labels of a cluster's nodes; those that are not there have none."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}

    def of(self, name: str) -> Mapping[str, str]:
        return self._labels.get(name, {})

    def replaced(self, objects: dict[str, Node]) -> None:
        self._labels = {name: node.metadata.labels or {} for name, node in objects.items()}

    def put(self, key: str, value: Node) -> None:
        self._labels[key] = value.metadata.labels or {}

    def removed(self, key: str) -> None:
        self._labels.pop(key, None)


class _Streams:
    """The nodes with their senders."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        noisy = round(plan.count * plan.noisy_ratio)
        numbers = range(plan.first, plan.first + plan.count)
        self.nodes = [SimulatedNode(f"{plan.prefix}{n}", n - plan.first < noisy, plan.seed) for n in numbers]
        for position, node in enumerate(self.nodes):
            node.interface = plan.interfaces[position % len(plan.interfaces)]
            node.kata = plan.kata
        self._noisy = {node.name for node in self.nodes if node.noisy}
        self._facts = [msgspec.json.encode(node.facts({})) for node in self.nodes]
        self.senders = [
            Sender(Identity(node.name, version="simulated", facts=facts), plan.address, plan.open_channel)
            for node, facts in zip(self.nodes, self._facts, strict=True)
        ]

    def obey(self, position: int, labels: Mapping[str, str]) -> None:
        """Have one node do what its labels say."""
        node, wanted = self.nodes[position], self._plan.noisy_when
        node.noisy = node.name in self._noisy or (wanted is not None and labels.get(wanted[0]) == wanted[1])
        facts = msgspec.json.encode(node.facts(labels))
        if facts != self._facts[position]:
            self._facts[position] = facts
            self.senders[position].tell(facts)


async def run(plan: Plan, seconds: float | None, client: Client | None = None) -> dict[str, int]:
    """Stream all nodes' samples, spread over each second, for a time or until cancelled; returns what was sent.

    With a client the nodes obey the labels of the cluster's Nodes of their names.
    """
    streams, labels = _Streams(plan), _Labels()
    tasks = []
    try:
        if client is not None:
            informer = Informer(client, NODES, Node, labels)
            tasks.append(asyncio.create_task(informer.run()))
            await informer.synced.wait()
            for position, node in enumerate(streams.nodes):
                streams.obey(position, labels.of(node.name))
        tasks += [asyncio.create_task(sender.run()) for sender in streams.senders]
        await _stream(plan, streams, labels.of if client is not None else None, seconds)
    except asyncio.CancelledError:
        pass  # told to end: what was sent until now is the answer
    finally:
        counts = _counts(streams.senders)  # while those that are connected still are
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return counts


async def _stream(
    plan: Plan, streams: _Streams, labels: Callable[[str], Mapping[str, str]] | None, seconds: float | None
) -> None:
    started = time.monotonic()
    for tick in range(2**62):
        for position, (node, sender) in enumerate(zip(streams.nodes, streams.senders, strict=True)):
            due = started + tick + position / plan.count
            if (wait := due - time.monotonic()) > 0.002:
                await asyncio.sleep(wait)
            if seconds is not None and due - started >= seconds:
                return
            if labels is not None:
                streams.obey(position, labels(node.name))
            sender.offer(node.sample(due, time.time()))  # as on a node: the clock outlives who samples


def _counts(senders: list[Sender]) -> dict[str, int]:
    return {
        "nodes": len(senders),
        "connected": sum(sender.connected for sender in senders),
        "sent": sum(sender.sent for sender in senders),
        "dropped": sum(sender.dropped for sender in senders),
        "failures": sum(sender.failures for sender in senders),
    }
