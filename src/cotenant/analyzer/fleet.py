"""All nodes: their samples come in, their publications come out. Pure but for the clock."""

from typing import TypeGuard

import msgspec

from cotenant.analyzer.ledgers import Ledgers
from cotenant.analyzer.publication import NodePublication, worst_first
from cotenant.analyzer.rulebook import Rulebook
from cotenant.analyzer.tally import Tally
from cotenant.analyzer.trial import Share
from cotenant.api import report, timestamp
from cotenant.detect import errors, rules
from cotenant.model import sample
from cotenant.units.clock import Clock

FORGET_SECONDS = 600.0
"""How long after it left the cluster a node is remembered."""
MAX_NODES = 20_000
MAX_UPTIME_SECONDS = 1e10
"""Three centuries: a node that says it runs for longer, or for NaN seconds, cannot be placed in time."""
STEPPED_BACK_SECONDS = 60.0
"""A node without boot ids whose clock is behind by more than this has booted again; by less, its samples came late."""
SUMMARY_NODES = 500
SUMMARY_BYTES = 512 * 1024


class Fleet:
    """The analyzer's memory of its nodes."""

    def __init__(self, rulebook: Rulebook, clock: Clock) -> None:
        self.rulebook = rulebook
        self._clock = clock
        self.nodes: dict[str, NodePublication] = {}
        self._labels: dict[str, dict[str, str]] = {}
        self._uptime: dict[str, tuple[str | None, float]] = {}
        self._gone_at: dict[str, float] = {}
        self.tallies: set[Tally] = set()
        """What nodes use, for each that reads it now."""
        self.no_loosening_until = -1.0
        self.taken_over = False
        """Whether what an earlier leader published is known."""
        self.ledgers = Ledgers(clock)
        """What offline work asked for, got and lost."""
        self.samples = 0
        self.refused = 0
        """Samples that could not be judged, or came twice."""

    def hear(self, node: str, samples: list[sample.Sample], facts: report.NodeFacts | None = None) -> None:
        """Judge a node's samples, oldest first, that have just been received together.

        The time of a sample is that of its arrival less its distance to the newest, by the node's monotonic clock.
        """
        now, wall = self._clock.monotonic(), self._clock.wall()
        publication = self.nodes.get(node)
        if publication is None:
            if len(self.nodes) >= MAX_NODES:
                self.refused += len(samples)
                return
            publication = self.nodes[node] = NodePublication(node, now)
        if facts is not None and facts is not publication.facts:
            publication.tell(facts, now)
            self.rulebook.hosts(node, facts.workload_types)
        engine = self.rulebook.engine_for(node, self._labels.get(node, {}))
        newest: dict[str | None, float] = {}
        for taken in samples:
            if _is_placed(taken.uptime_s):  # each boot has a clock of its own
                newest[taken.boot_id] = max(newest.get(taken.boot_id, 0.0), taken.uptime_s)
        self._see_reboot(node, newest)
        fresh = self._fresh(node, samples)
        for taken, uptime_s in fresh:
            observed = wall - (newest[taken.boot_id] - uptime_s)
            for tally in self.tallies:
                tally.take(node, taken)
            named = taken if taken.node == node else msgspec.structs.replace(taken, node=node)
            try:
                moment = engine.advance(named)
            except errors.DetectError:
                self.refused += 1
                continue
            self.samples += 1
            if taken is not fresh[-1][0] and moment.is_calm and not publication.limited:
                publication.pass_over(now, observed)  # of several calm ones, only the newest can be seen
                continue
            hold = engine.in_force.hysteresis.min_hold_seconds
            standing = engine.standing(node) if publication.limited else {}
            publication.hear(moment.describe(), now, observed, hold, standing)

    def _see_reboot(self, node: str, newest: dict[str | None, float]) -> None:
        """Let a node without boot ids begin anew whose clock has stepped back."""
        boot_id, last = self._uptime.get(node, (None, -1.0))
        if not boot_id and boot_id in newest and newest[boot_id] < last - STEPPED_BACK_SECONDS:
            del self._uptime[node]

    def _fresh(self, node: str, samples: list[sample.Sample]) -> list[tuple[sample.Sample, float]]:
        """Return the samples that can be placed in the node's time and were not heard before, with their time."""
        fresh = []
        for taken in samples:
            boot_id, last = self._uptime.get(node, (None, -1.0))
            uptime_s = taken.uptime_s
            if not _is_placed(uptime_s) or (taken.boot_id == boot_id and uptime_s <= last):
                self.refused += 1
                continue
            self._uptime[node] = (taken.boot_id, uptime_s)
            fresh.append((taken, uptime_s))
        return fresh

    def rules_of(self, node: str) -> rules.Rules:
        """Return the rules that a node is judged by. Nothing is kept of a name that is only asked about."""
        return self.rulebook.rules_for(node, self._labels.get(node, {}))

    def share_of(self, name: str) -> Share:
        """Return how many of the nodes that an object's rules judge are past a hard limit now.

        A node that was not heard of yet is where an earlier leader saw it.
        """
        labels, name_for = self._labels, self.rulebook.name_for
        judged = [node for key, node in self.nodes.items() if name_for(key, labels.get(key, {})) == name]
        limited = sum(bool(node.evaluation.hard if node.evaluation else node.material().hard) for node in judged)
        return Share(limited, len(judged))

    def relabel(self, node: str, labels: dict[str, str]) -> None:
        """Take a node's labels, by which its rules are chosen; a node that is in the cluster is not forgotten."""
        self._gone_at.pop(node, None)
        if self._labels.get(node) != labels:
            self._labels[node] = labels
            self.rulebook.relabelled(node)

    def left(self, node: str) -> None:
        """Note that a node has left the cluster."""
        self._gone_at.setdefault(node, self._clock.monotonic())

    def take_over(self, statuses: dict[str, report.ReportStatus], seconds: float) -> None:
        """Start from what an earlier leader published, and loosen none of it for so many seconds."""
        now = self._clock.monotonic()
        self.no_loosening_until = now + seconds
        self.taken_over = True
        for node, status in statuses.items():
            if node not in self.nodes:
                self.nodes[node] = NodePublication(node, now)
                self.nodes[node].seed(status, now)

    def tick(self) -> None:
        """Turn silent nodes unknown and forget those that left the cluster long ago, or are silent and never were."""
        now = self._clock.monotonic()
        for publication in self.nodes.values():
            publication.check_silence(now)
        gone = {node for node, at in self._gone_at.items() if now - at > FORGET_SECONDS}
        gone |= {
            name
            for name, node in self.nodes.items()
            if name not in self._labels and now - node.heard_at > FORGET_SECONDS
        }
        for node in gone:
            self._gone_at.pop(node, None)
            self._labels.pop(node, None)
            self._uptime.pop(node, None)
            self.nodes.pop(node, None)
            self.ledgers.forget(node)
            self.rulebook.forget(node)

    def due(self, at_most: int) -> list[NodePublication]:
        """Return the nodes whose reports should be written now, worst first."""
        now = self._clock.monotonic()
        waiting = [node for node in self.nodes.values() if node.is_due(now, self.no_loosening_until)]
        return worst_first(waiting)[:at_most]

    def waiting(self) -> int:
        """Return how many reports are due."""
        now = self._clock.monotonic()
        return sum(node.is_due(now, self.no_loosening_until) for node in self.nodes.values())

    def summary(self) -> report.ReportStatus:
        """Return the status of the object ``cluster``: all nodes up to a number, beyond that the worst, and counts."""
        entries = [node.summary() for node in self.nodes.values()]
        counts = {"nodes": len(entries), "hard": sum(bool(entry.hard) for entry in entries)}
        for entry in entries:
            bucket = entry.bucket or "unknown"
            counts[bucket] = counts.get(bucket, 0) + 1
        entries.sort(key=lambda entry: (not entry.hard, -(entry.interference_level or -1.0), entry.name))
        kept = entries[:SUMMARY_NODES]
        while kept and len(msgspec.json.encode(kept)) > SUMMARY_BYTES * 3 // 4:  # managedFields come on top
            kept = kept[: len(kept) * 9 // 10]
        return report.ReportStatus(
            observed_at=timestamp.render(self._clock.wall()),
            nodes=sorted(kept, key=lambda entry: entry.name),
            counts=dict(sorted(counts.items())),
        )


def _is_placed(uptime_s: float | None) -> TypeGuard[float]:
    return uptime_s is not None and 0.0 <= uptime_s <= MAX_UPTIME_SECONDS
