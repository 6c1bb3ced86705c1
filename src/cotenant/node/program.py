"""``cotenant node``: everything put together, started, and stopped by SIGINT or SIGTERM."""

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import cotenant
from cotenant.api.report import Mode
from cotenant.detect import templates
from cotenant.kernel import enforcing, executor, paths, sampler
from cotenant.kube import channel, ending, mounted
from cotenant.kube.client import Client
from cotenant.kube.configuration import load_configuration
from cotenant.model.priority import InterfaceName
from cotenant.node import (
    agent,
    aliases,
    cpus,
    evicting,
    expiry,
    facts,
    killing,
    metrics,
    nri,
    policy,
    reporting,
    sending,
    shadow,
    starting,
    topology_writing,
)
from cotenant.node import kubelet as kubelets
from cotenant.units.clock import Clock, SystemClock
from cotenant.web import exporter

Loop = Coroutine[Any, Any, None]
"""Runs until cancelled."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the agent runs. ``kubeconfig`` and ``in_cluster`` both unset: no API server, the mode given holds."""

    name: str
    mode: Mode = "observe"
    period_seconds: float = 1.0
    kubelet: kubelets.Settings = dataclasses.field(default_factory=kubelets.Settings)
    analyzer: str = ""
    analyzer_ca: pathlib.Path | None = None
    analyzer_name: str = ""
    """What the analyzer's certificate must say; its address by default."""
    analyzer_token_file: pathlib.Path | None = None
    """The token for the analyzer; ``token_file`` by default."""
    token_file: pathlib.Path | None = None
    kubeconfig: pathlib.Path | None = None
    follow_cluster: bool = True
    metrics: str = ""
    koordlet_metrics: bool = False
    """Some metrics under koordlet's names too."""
    nri: pathlib.Path | None = None
    interface: InterfaceName | None = None
    beside_others: bool = False
    shadow: bool = False
    """Compare with what a running koordlet wrote, and write nothing, whatever the mode."""
    llc_probe: bool = False
    state: pathlib.Path = pathlib.Path("/var/lib/cotenant")
    """What is to outlive the agent and a reboot: what predictions rest on."""
    kubelet_directory: pathlib.Path = pathlib.Path("/var/lib/kubelet")
    whole_cores: bool = True
    """Give LSE and LSR pods CPUs of their own where no scheduler did."""
    templates: pathlib.Path | None = None
    """Strategy templates over the bundled ones."""
    evict: bool = False
    """Let the policy's eviction strategies ask the API server for evictions."""
    kata_root: pathlib.Path | None = pathlib.Path("/")
    """Where the host's ``/dev`` and ``/etc`` are, which say what Kata finds there; None: not looked at, so unknown."""
    runtime: pathlib.Path | None = None
    """The container runtime's socket: what has to go for memory and does not is killed there."""


async def run(settings: Settings, started: Callable[[str], None]) -> None:
    """Work until told to end; ``started`` gets a line for the person who started it."""
    if settings.analyzer:
        channel.check(settings.analyzer, settings.analyzer_ca)
    await ending.until_told(_work(settings, started))


async def _work(settings: Settings, started: Callable[[str], None]) -> None:
    node = _Node(settings)
    try:
        node.serve_metrics()
        doing = "shadow of koordlet, nothing is written" if settings.shadow else f"mode {settings.mode}"
        started(f"cotenant: node {settings.name}, {doing}; ctrl-C ends it and leaves limits in force")
        async with contextlib.AsyncExitStack() as opened:
            client = None
            if settings.follow_cluster:
                config = load_configuration(settings.kubeconfig)
                client = await opened.enter_async_context(Client(config, "cotenant-node"))
            async with asyncio.TaskGroup() as tasks:
                for loop in (*node.loops(), *(node.loops_of_cluster(client) if client is not None else ())):
                    tasks.create_task(loop)
    finally:
        node.close()


class _Node:
    """The parts of the agent, put together."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = root = paths.Root()
        self._clock = clock = SystemClock()
        self._sampler = sampler.open_sampler(
            root, node=settings.name, period_s=settings.period_seconds, clock=clock, llc_probe=settings.llc_probe
        )
        self._source = kubelets.PodSource(kubelets.Kubelet(settings.kubelet), clock)
        self._policy = policy.Policy(settings.name, settings.mode, follows_node=settings.follow_cluster)
        self._evicting = _evicting(settings, clock)
        self._enforcer = enforcing.Enforcer(
            root,
            executor.Executor(root, evict=self._evicting),
            interface=settings.interface,
            beside_others=settings.beside_others,
        )
        self._sender = _sender(settings) if settings.analyzer else None
        self._cpus = cpus.Assignments(
            root, kubelets.Kubelet(settings.kubelet), clock, settings.kubelet_directory, settings.whole_cores
        )
        self._agent = agent.Agent(
            root,
            self._sampler,
            self._source,
            self._policy,
            self._enforcer,
            self._sender,
            clock,
            shadow=shadow.Shadow(clock) if settings.shadow else None,
            state=settings.state,
            cpus=self._cpus,
            evicting=self._evicting,
        )
        if settings.koordlet_metrics:
            self._agent.aliases = aliases.Aliases(settings.name)
        self._templates = mounted.optional(settings.templates, templates.over_bundled)
        if self._templates is not None:
            self._agent.hosting.take_templates(self._templates.value)
        self._plugin = self._nri_plugin()
        self._collector = metrics.AgentCollector(self._agent, self._source, self._policy, self._sender, self._plugin)

    def serve_metrics(self) -> None:
        """Serve ``/metrics`` where the settings say.

        :raises BadAddress: if that address cannot be listened on.
        """
        if not self._settings.metrics:
            return
        collectors = [self._collector, *([self._agent.aliases] if self._agent.aliases else [])]
        exporter.serve(collectors, self._settings.metrics, "--metrics", self._unhealthy)

    def loops(self) -> Iterator[Loop]:
        """Yield what runs with and without an API server."""
        yield self._agent.run()
        if self._templates is not None:
            yield self._templates.follow(self._agent.hosting.take_templates)
        if self._sender is not None:
            yield self._telling().run(self._sender.tell)
        if self._plugin is not None:
            yield self._plugin.run()

    def loops_of_cluster(self, client: Client) -> Iterator[Loop]:
        """Yield what follows an API server and writes to it."""
        name, root, clock = self._settings.name, self._root, self._clock
        for informer in policy.informers(client, name, self._policy):
            yield informer.run()
        verdict = expiry.Expiry(client, name, lambda: self._policy.object, self._streams, clock)
        yield verdict.run()
        reporter = reporting.Reporter(
            root, client, name, lambda: self._agent.present, self._policy, self._yields, clock, self._settings.state
        )
        topology = topology_writing.TopologyWriter(
            root, client, name, lambda: self._agent.seen, self._cpus, self._policy, self._yields, clock
        )
        self._collector.reporter, self._collector.topology, self._collector.expiry = reporter, topology, verdict
        self._agent.listen(reporter.take)
        for writer in (reporter, topology):
            yield writer.informer().run()
            yield writer.run()
        if self._evicting is not None:
            yield self._evicting.run(client)

    def close(self) -> None:
        """Close what is open in the kernel."""
        self._sampler.close()

    def _nri_plugin(self) -> nri.Plugin | None:
        """Return what sets containers up before they start; in shadow there is none, for it writes."""
        if self._settings.nri is None or self._settings.shadow:
            return None
        decisions = starting.Starting(self._source, self._policy, self._enforcer)
        return nri.Plugin(self._settings.nri, decisions.started, decisions.adjust, decisions.resizing)

    def _telling(self) -> facts.Telling:
        kata_root = self._settings.kata_root
        parts = facts.Parts(
            self._root,
            self._agent,
            self._source,
            self._policy,
            self._enforcer,
            self._clock,
            paths.Root(kata_root) if kata_root is not None else None,
        )
        return facts.Telling(parts, self._settings.interface, self._settings.beside_others)

    def _unhealthy(self) -> str | None:
        return None if self._agent.sampling else "no sample for a minute"

    def _streams(self) -> bool:
        return self._sender is not None and self._sender.connected

    def _yields(self) -> bool:
        """Return whether this node's objects are another agent's to write: a koordlet that runs here too."""
        return self._settings.shadow or bool(self._enforcer.conflict)


def _evicting(settings: Settings, clock: Clock) -> evicting.Evicting | None:
    if not settings.evict:
        return None
    last_resort = None
    if settings.runtime is not None:
        from cotenant.node import runtime  # the runtime's protocol takes memory that only who kills is to pay

        last_resort = killing.Killing(runtime.Runtime(settings.runtime), clock)
    return evicting.Evicting(settings.name, clock, last_resort)


def _sender(settings: Settings) -> sending.Sender:
    identity = sending.Identity(node=settings.name, version=cotenant.__version__)
    token = settings.analyzer_token_file or settings.token_file
    opening = channel.opener(settings.analyzer_ca, token, settings.analyzer_name)
    return sending.Sender(identity, settings.analyzer, opening)
