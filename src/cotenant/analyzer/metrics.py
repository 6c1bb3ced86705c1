"""What the analyzer tells Prometheus. Series are bounded: labels come from closed lists and of 100 namespaces."""

from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client import core, registry

from cotenant.analyzer.fleet import Fleet
from cotenant.analyzer.following import Following
from cotenant.analyzer.receiving import Receiver
from cotenant.analyzer.writing import Writer
from cotenant.model.evaluation import Bucket
from cotenant.web import ledger


class AnalyzerCollector(registry.Collector):
    """Reads the analyzer when asked."""

    def __init__(
        self,
        fleet: Fleet,
        receiver: Receiver,
        writer: Writer,
        leads: Callable[[], bool],
        following: Following | None = None,
    ) -> None:
        self._following = following
        self._fleet = fleet
        self._receiver = receiver
        self._writer = writer
        self._leads = leads

    def _offline(self) -> Iterator[core.Metric]:
        """Yield the ledger of offline work; none while nobody was heard of."""
        session = self._fleet.ledgers.total().session
        if session:
            yield from ledger.metrics_of(session, "namespace", self._fleet.ledgers.wall())

    def collect(self) -> Iterator[core.Metric]:
        counts = dict.fromkeys(get_args(Bucket), 0)
        hard = 0
        for node in self._fleet.nodes.values():
            material = node.material()
            counts[material.bucket] += 1
            hard += bool(material.hard)
        nodes = core.GaugeMetricFamily("cotenant_analyzer_nodes", "Nodes held, by published bucket.", labels=["bucket"])
        for bucket, count in counts.items():
            nodes.add_metric([bucket], count)
        yield nodes
        gauges = {
            "cotenant_analyzer_hard_limited_nodes": ("Nodes with a hard limit in force.", hard),
            "cotenant_analyzer_streams": ("Nodes whose stream is open.", self._receiver.connected),
            "cotenant_analyzer_reports_waiting": ("Reports that are due.", self._fleet.waiting()),
            "cotenant_analyzer_leading": ("1 while this replica takes samples.", int(self._leads())),
            "cotenant_analyzer_rules_refused": (
                "Objects of rules whose newest generation is not in force.",
                sum(book.refused is not None for book in self._fleet.rulebook.books.values()),
            ),
        }
        for name, (text, value) in gauges.items():
            yield core.GaugeMetricFamily(name, text, value=value)
        counters = {
            "cotenant_analyzer_samples": ("Samples judged.", self._fleet.samples),
            "cotenant_analyzer_samples_refused": ("Samples that came twice or cannot be judged.", self._fleet.refused),
            "cotenant_analyzer_calls_refused": ("Calls turned away for who made them.", self._receiver.refused),
            "cotenant_analyzer_rules_rolled_back": ("Changes of rules taken back.", self._fleet.rulebook.rollbacks),
            "cotenant_analyzer_messages_malformed": ("Samples or facts that cannot be read.", self._receiver.malformed),
            "cotenant_analyzer_reports_written": ("Reports written.", self._writer.written.reports),
            "cotenant_analyzer_summaries_written": ("Summaries of all nodes written.", self._writer.written.summaries),
            "cotenant_analyzer_write_failures": ("Writes that failed.", self._writer.written.failures),
        }
        for name, (text, value) in counters.items():
            yield core.CounterMetricFamily(name, text, value=value)
        if self._following is not None:
            yield from _watches(self._following)
        yield from self._offline()


def _watches(following: Following) -> Iterator[core.Metric]:
    failures = core.CounterMetricFamily(
        "cotenant_analyzer_watch_failures", "Lists and watches that failed.", labels=["kind"]
    )
    malformed = core.CounterMetricFamily(
        "cotenant_analyzer_malformed", "Objects that could not be read.", labels=["kind"]
    )
    for kind, informer in (("nodes", following.nodes), ("rules", following.rules)):
        failures.add_metric([kind], informer.failures)
        malformed.add_metric([kind], informer.malformed)
    yield failures
    yield malformed
