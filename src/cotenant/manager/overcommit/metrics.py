"""What overcommit shows of itself: a fixed number of series, whatever the number of nodes."""

import collections
from typing import TYPE_CHECKING

from prometheus_client import core, registry

from cotenant.manager.overcommit import names
from cotenant.manager.overcommit.account import STATES

if TYPE_CHECKING:
    from cotenant.manager.overcommit.controller import Term


class OvercommitCollector(registry.Collector):
    """Sums over all nodes, of one term of leadership."""

    def __init__(self, term: "Term") -> None:
        self._term = term

    def collect(self) -> list[core.Metric]:
        gauge, counter = core.GaugeMetricFamily, core.CounterMetricFamily
        term = self._term
        states = collections.Counter(account.state for account in term.accounts.values())
        by_state = gauge("cotenant_overcommit_nodes", "Nodes by what is known of their use.", labels=["state"])
        for state in STATES:
            by_state.add_metric([state], states[state])
        offered = gauge("cotenant_overcommit_offered", "Offered on all nodes together.", labels=["resource"])
        asked = gauge("cotenant_overcommit_asked", "What pods on all nodes ask for of it.", labels=["resource"])
        for name in names.PUBLISHED:
            offered.add_metric([name], sum(node.published.get(name, 0) for node in term.nodes.facts.values()))
            asked.add_metric([name], term.pods.asked(name))
        contested = sum(account.is_contested for account in term.accounts.values())
        heard_at = term.feed.heard_at
        found: list[core.Metric] = [
            by_state,
            offered,
            asked,
            gauge("cotenant_overcommit_nodes_contested", "Nodes whose values somebody else writes.", value=contested),
            gauge("cotenant_overcommit_nodes_unread", "Nodes not understood.", value=len(term.nodes.problems)),
            gauge(
                "cotenant_overcommit_standing_back",
                "1 while these resources are somebody else's: Koordinator's own manager's while it lives.",
                value=float(term.is_standing_back),
            ),
            counter("cotenant_overcommit_tables", "Usage tables that came from the analyzer.", value=term.feed.tables),
            counter("cotenant_overcommit_stream_failures", "Calls for them that failed.", value=term.feed.failures),
            counter("cotenant_overcommit_rows_malformed", "Rows of them not understood.", value=term.feed.malformed),
        ]
        if heard_at is not None:
            age = term.age_of(heard_at)
            found.append(gauge("cotenant_overcommit_table_age_seconds", "Age of the newest table.", value=age))
        return found
