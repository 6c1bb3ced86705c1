"""``cotenant node``: everything put together, started, and stopped by SIGINT or SIGTERM."""

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Callable, Coroutine
from typing import Any

import cotenant
from cotenant.api.report import Mode
from cotenant.detect import templates
from cotenant.kernel import enforcing, executor, paths, sampler
from cotenant.kube import channel, ending, mounted
from cotenant.kube.client import Client, load_configuration
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
    runtime,
    sending,
    shadow,
    starting,
    topology_writing,
)
from cotenant.node import kubelet as kubelets
from cotenant.units.clock import SystemClock
from cotenant.web import exporter

_log = logging.getLogger(__name__)


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
    root, clock = paths.Root(), SystemClock()
    taking = sampler.open_sampler(
        root, node=settings.name, period_s=settings.period_seconds, clock=clock, llc_probe=settings.llc_probe
    )
    source = kubelets.PodSource(kubelets.Kubelet(settings.kubelet), clock)
    kept = policy.Policy(settings.name, settings.mode, follows_node=settings.follow_cluster)
    last_resort = killing.Killing(runtime.Runtime(settings.runtime), clock) if settings.runtime is not None else None
    evictions = evicting.Evicting(settings.name, clock, last_resort) if settings.evict else None
    writer = executor.Executor(root, evict=evictions)
    enforcer = enforcing.Enforcer(root, writer, interface=settings.interface, beside_others=settings.beside_others)
    sender = _sender(settings) if settings.analyzer else None
    beside = shadow.Shadow(clock) if settings.shadow else None
    given = cpus.Assignments(
        root, kubelets.Kubelet(settings.kubelet), clock, settings.kubelet_directory, settings.whole_cores
    )
    working = agent.Agent(root, taking, source, kept, enforcer, sender, clock, beside, settings.state, given, evictions)
    known = mounted.Mounted(settings.templates, templates.over_bundled) if settings.templates is not None else None
    if known is not None:
        working.hosting.take_templates(known.value)
    host = paths.Root(settings.kata_root) if settings.kata_root is not None else None
    parts = facts.Parts(root, working, source, kept, enforcer, clock, host)
    telling = facts.Telling(parts, settings.interface, settings.beside_others)
    plugin = None
    if settings.nri is not None and beside is None:
        decisions = starting.Starting(source, kept, enforcer)
        plugin = nri.Plugin(settings.nri, decisions.started, decisions.adjust, decisions.resizing)
    collector = metrics.AgentCollector(working, source, kept, sender, plugin)
    if settings.koordlet_metrics:
        working.aliases = aliases.Aliases(settings.name)
    if settings.metrics:
        collectors = [collector, *([working.aliases] if working.aliases else [])]
        exporter.serve(collectors, settings.metrics, "--metrics", _unhealthy(working))
    doing = "shadow of koordlet, nothing is written" if settings.shadow else f"mode {settings.mode}"
    started(f"cotenant: node {settings.name}, {doing}; ctrl-C ends it and leaves limits in force")
    try:
        async with contextlib.AsyncExitStack() as opened:
            config = load_configuration(settings.kubeconfig) if settings.follow_cluster else None
            loops: list[Coroutine[Any, Any, None]] = [working.run()]
            if known is not None:
                loops.append(known.follow(working.hosting.take_templates))
            if sender is not None:
                loops.append(telling.run(sender.tell))
            if plugin is not None:
                loops.append(plugin.run())
            if config is not None:
                client = await opened.enter_async_context(Client(config, "cotenant-node"))
                loops += [informer.run() for informer in policy.informers(client, settings.name, kept)]
                loops.append(_expiry(client, settings.name, kept, sender, clock).run())
                yields = _yields(enforcer, beside)
                reporter = reporting.Reporter(
                    root, client, settings.name, lambda: working.present, kept, yields, clock, settings.state
                )
                writing = topology_writing.TopologyWriter(
                    root, client, settings.name, lambda: working.seen, given, kept, yields, clock
                )
                collector.reporter, collector.topology = reporter, writing
                working.listen(reporter.take)
                if evictions is not None:
                    loops.append(evictions.run(client))
                loops += [reporter.informer().run(), reporter.run(), writing.informer().run(), writing.run()]
            async with asyncio.TaskGroup() as tasks:
                for loop in loops:
                    tasks.create_task(loop)
    finally:
        taking.close()


def _unhealthy(working: agent.Agent) -> Callable[[], str | None]:
    """Return what says why the agent is not well; None while it is."""
    return lambda: None if working.sampling else "no sample for a minute"


def _yields(enforcer: enforcing.Enforcer, beside: shadow.Shadow | None) -> Callable[[], bool]:
    """Return who says that this node's objects are another agent's to write: a koordlet that runs here too."""
    return lambda: beside is not None or bool(enforcer.conflict)


def _expiry(
    client: Client, name: str, kept: policy.Policy, sender: sending.Sender | None, clock: SystemClock
) -> expiry.Expiry:
    return expiry.Expiry(client, name, lambda: kept.object, lambda: sender is not None and sender.connected, clock)


def _sender(settings: Settings) -> sending.Sender:
    identity = sending.Identity(node=settings.name, version=cotenant.__version__)
    token = settings.analyzer_token_file or settings.token_file
    opening = channel.opener(settings.analyzer_ca, token, settings.analyzer_name)
    return sending.Sender(identity, settings.analyzer, opening)
