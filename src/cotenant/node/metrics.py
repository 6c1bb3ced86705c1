"""What the agent tells Prometheus of itself. Series are bounded: labels come from closed lists."""

from collections.abc import Iterator
from typing import get_args

from prometheus_client import core, registry

from cotenant.model.snapshot import Place
from cotenant.node.agent import Agent
from cotenant.node.evicting import RESULTS
from cotenant.node.expiry import Expiry
from cotenant.node.kubelet import PodSource
from cotenant.node.nri import Plugin
from cotenant.node.policy import MODES, Policy
from cotenant.node.reporting import Reporter
from cotenant.node.sending import Sender
from cotenant.node.shadow import Shadow
from cotenant.node.topology_writing import TopologyWriter
from cotenant.web import sample_metrics

PODS_LIMIT = 50
"""Pods with series of their own (13 each): the busiest, online and offline ones first; about 100 are the node's."""


class AgentCollector(registry.Collector):
    """Reads the agent when asked."""

    def __init__(
        self, agent: Agent, source: PodSource, kept: Policy, sender: Sender | None, plugin: Plugin | None = None
    ) -> None:
        self._agent = agent
        self._source = source
        self._policy = kept
        self._sender = sender
        self._plugin = plugin
        self.reporter: Reporter | None = None
        self.topology: TopologyWriter | None = None
        self.expiry: Expiry | None = None
        """All three are set once there is a cluster to report to."""

    def collect(self) -> Iterator[core.Metric]:
        yield from self._doing()
        for name, (text, value) in self._counters().items():
            yield core.CounterMetricFamily(name, text, value=value)
        if self._agent.newest is not None:
            pods = [group for group in self._agent.newest.cgroups if group.name and group.name.count("/") == 1]
            yield from sample_metrics.of_sample(self._agent.newest, sample_metrics.busiest(pods, PODS_LIMIT))
        if self._agent.evaluation is not None:
            yield from sample_metrics.of_evaluation(self._agent.evaluation)
        yield from sample_metrics.of_losses(self._agent.bpf_losses)
        if self._agent.shadow is not None and self._agent.shadow.rounds:
            yield from _shadow(self._agent.shadow)
        yield from self._others()

    def _doing(self) -> Iterator[core.Metric]:
        """Yield what the agent is about, and what became of what it decided."""
        status, mode = self._agent.status, self._policy.mode
        modes = core.GaugeMetricFamily("cotenant_node_mode", "1 for the mode in force.", labels=["mode"])
        for known in MODES:
            modes.add_metric([known], float(known == mode))
        yield modes
        outcomes = core.CounterMetricFamily(
            "cotenant_node_plan_items", "Plan items, by what became of them.", labels=["state"]
        )
        for state, count in sorted(status.outcomes.items()):
            outcomes.add_metric([state], count)
        yield outcomes
        if status.planned is not None:
            text = "What differs from the plan; absent while none is made."
            yield core.GaugeMetricFamily("cotenant_node_planned_items", text, value=status.planned)
        text = "Files that somebody else keeps writing over."
        yield core.GaugeMetricFamily("cotenant_files_contested", text, value=len(status.contests))
        places = core.GaugeMetricFamily(
            "cotenant_node_left_to_others",
            "1 where suppression writes nothing, since somebody else keeps writing there.",
            labels=["place"],
        )
        for place in get_args(Place):
            places.add_metric([place], float(place in status.left_to_others))
        yield places
        if self._agent.evicting is not None:
            evictions = core.CounterMetricFamily(
                "cotenant_node_evictions", "Evictions, by what the API server said.", labels=["result"]
            )
            for result in RESULTS:
                evictions.add_metric([result], self._agent.evicting.counts[result])
            yield evictions

    def _counters(self) -> dict[str, tuple[str, float]]:
        status = self._agent.status
        counters: dict[str, tuple[str, float]] = {
            "cotenant_node_rounds": ("Rounds of looking and deciding.", status.rounds),
            "cotenant_node_round_failures": ("Rounds that failed.", status.round_failures),
            "cotenant_node_writes": ("Kernel files that changed.", status.writes),
            "cotenant_node_late_ticks": ("Samples that were skipped because one took too long.", status.late_ticks),
            "cotenant_node_kubelet_failures": ("Requests for pods that failed.", self._source.failures),
            "cotenant_node_restore_failures": ("Files that could not be put back.", self._agent.releasing.failures),
            "cotenant_node_fast_path_tightenings": ("Quotas tightened between two rounds.", self._agent.tightenings),
        }
        enforcer = self._agent.enforcer
        counters |= {
            "cotenant_node_rewrites": ("Values of ours that somebody else replaced.", enforcer.rewrites),
            "cotenant_node_irreversible_writes": (
                "Kernel files written that the kernel does not take back.",
                enforcer.irreversible_writes,
            ),
            "cotenant_node_journal_records_lost": (
                "Records of changes that the journal had no room for, or that cannot be read.",
                enforcer.lost_records,
            ),
        }
        if self._sender is not None:
            counters |= {
                "cotenant_node_samples_sent": ("Samples sent to the analyzer.", self._sender.sent),
                "cotenant_node_samples_dropped": ("Samples nobody took in time.", self._sender.dropped),
                "cotenant_node_stream_failures": ("Calls to the analyzer that failed.", self._sender.failures),
            }
        if self._plugin is not None:
            text = "Times that the runtime took us as a plugin."
            counters |= {
                "cotenant_node_nri_connections": (text, self._plugin.connections),
                "cotenant_node_nri_adjusted": ("Containers set up before they started.", self._plugin.adjusted),
                "cotenant_node_nri_failures": ("Requests left to the reconciler.", self._plugin.failures),
            }
        if self.reporter is not None:
            counters |= {
                "cotenant_node_metric_writes": ("NodeMetrics written.", self.reporter.writes),
                "cotenant_node_metric_failures": ("Writes of a NodeMetric that failed.", self.reporter.failures),
            }
        if self.topology is not None:
            counters |= {
                "cotenant_node_topology_writes": ("NodeResourceTopologies written.", self.topology.writes),
                "cotenant_node_topology_failures": ("Writes of one that failed.", self.topology.failures),
            }
        if self.expiry is not None:
            text = "Verdicts taken off this node: nobody kept them true."
            counters["cotenant_node_verdicts_removed"] = (text, self.expiry.removals)
        return counters

    def _others(self) -> Iterator[core.Metric]:
        """Yield how it stands with those we depend on: another agent, the runtime, the kubelet, the analyzer."""
        text = "1 while another co-location agent keeps us to observing."
        yield core.GaugeMetricFamily("cotenant_node_conflict", text, float(bool(self._agent.status.conflict)))
        if self._plugin is not None:
            taken = "1 while the container runtime has us as a plugin."
            yield core.GaugeMetricFamily("cotenant_node_nri_connected", taken, value=float(self._plugin.connected))
        if self._source.age_seconds is not None:
            age = self._source.age_seconds
            yield core.GaugeMetricFamily("cotenant_node_pods_age_seconds", "Age of the list of pods.", value=age)
        if self._sender is not None:
            connected, text = float(self._sender.connected), "1 while the analyzer takes samples."
            yield core.GaugeMetricFamily("cotenant_node_connected", text, value=connected)


def _shadow(shadow: Shadow) -> Iterator[core.Metric]:
    values = core.GaugeMetricFamily(
        "cotenant_node_shadow_values",
        "Values that koordlet and we would have alike, and lasting differences by whether they are explained.",
        labels=["state"],
    )
    lasting = shadow.lasting
    unexplained = sum(not one.explanation for one in lasting)
    values.add_metric(["agreed"], shadow.agreed)
    values.add_metric(["explained"], len(lasting) - unexplained)
    values.add_metric(["unexplained"], unexplained)
    yield values
    irreversible = sum(one.irreversible for one in lasting)
    text = "Of the lasting differences, what could not be undone once we wrote it."
    yield core.GaugeMetricFamily("cotenant_node_shadow_irreversible", text, value=irreversible)
