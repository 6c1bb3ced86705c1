"""The extender: a request's body in, the answer's body out. It reads the ready table and does nothing else."""

from collections.abc import Sequence
from typing import Any

from cotenant.api import extender_kube, extender_volcano, timestamp
from cotenant.api.objects import Pod
from cotenant.scheduler import decisions, herd, pods, scores, verdict
from cotenant.scheduler.decisions import Decisions, Verb
from cotenant.scheduler.metrics import Metrics
from cotenant.scheduler.rules import Rules
from cotenant.scheduler.source import Source
from cotenant.scheduler.verdict import Verdict
from cotenant.units.clock import Clock

_SCORED = Verdict(refused={})


class Extender:
    """Answers of both protocols by one set of rules, and the explanation of the last ones."""

    def __init__(self, source: Source, rules: Rules, clock: Clock, metrics: Metrics) -> None:
        self.source = source
        self.rules = rules
        self.clock = clock
        self.metrics = metrics
        self.decisions = Decisions()

    def kube_filter(self, body: bytes) -> bytes:
        """Answer filter: hard limits and Kata, as nodes that evicting pods would not mend.

        :raises BadRequest: if the body cannot be answered.
        """
        asked = extender_kube.decode_args(body)
        now, table = self.clock.wall(), self.source.table
        found = verdict.judge(
            asked.pod, asked.names, table, self.rules, now, waiver="within-request", nodes=asked.nodes
        )
        self._keep(now, "kube/filter", asked.pod, asked.names, found)
        return extender_kube.encode_filter(asked, found.refused)

    def kube_prioritize(self, body: bytes) -> bytes:
        """Answer prioritize with whole scores in 0..10.

        :raises BadRequest: if the body cannot be answered.
        """
        asked = extender_kube.decode_args(body)
        effective = self._effective("kube/prioritize", asked.pod, asked.names)
        given = scores.kube_scores(effective)
        self._expect(asked.pod, asked.names, given)
        return extender_kube.encode_priorities(asked.names, given)

    def kube_preempt(self, body: bytes) -> bytes:
        """Answer preempt: without the nodes that filter would refuse, so that nobody is evicted there for nothing.

        :raises BadRequest: if the body cannot be answered.
        """
        asked = extender_kube.decode_preemption(body)
        names = list(asked.victims)
        now = self.clock.wall()
        found = verdict.judge(asked.pod, names, self.source.table, self.rules, now, waiver="none")
        self._keep(now, "kube/preempt", asked.pod, names, found)
        return extender_kube.encode_preemption(asked, found.refused)

    def volcano_predicate(self, body: bytes) -> bytes:
        """Answer predicate: an empty status, or a reason with code 3.

        :raises BadRequest: if the body cannot be answered.
        """
        pod, node = extender_volcano.decode_predicate(body)
        now = self.clock.wall()
        found = verdict.judge(
            pod, [node.name], self.source.table, self.rules, now, waiver="over-all-reports",
            nodes={node.name: node.node} if node.node is not None else None,
        )  # fmt: skip
        self._keep(now, "volcano/predicate", pod, [node.name], found)
        return extender_volcano.encode_predicate(found.refused.get(node.name))

    def volcano_prioritize(self, body: bytes) -> bytes:
        """Answer prioritize with a map of scores, never without it.

        :raises BadRequest: if the body cannot be answered.
        """
        pod, nodes = extender_volcano.decode_prioritize(body)
        names = [node.name for node in nodes]
        effective = self._effective("volcano/prioritize", pod, names)
        given = scores.volcano_scores(effective, self.rules.volcano_weight)
        self._expect(pod, names, given)
        return extender_volcano.encode_prioritize(dict(zip(names, given, strict=True)))

    def _effective(self, verb: Verb, pod: Pod, names: list[str]) -> list[float]:
        now, table = self.clock.wall(), self.source.table
        if not pods.is_in_scope(pod, self.rules.applies_to):
            outside = Verdict(refused={}, not_judged=verdict.out_of_scope(self.rules))
            self._keep(now, verb, pod, names, outside)
            return [0.0] * len(names)
        rows = table.levels(names, now)
        effective = scores.effective_levels(rows, self.rules.preset)
        added: dict[str, float] = {}
        if self.source.herd is not None and any(rows):  # with nothing known all stay equal
            added = self.source.herd.additions(names, self.clock.monotonic())
        self._keep(now, verb, pod, names, _SCORED, added)
        return herd.adjusted(names, effective, added) if added else effective

    def _expect(self, pod: Pod, names: list[str], given: Sequence[float]) -> None:
        """Count the pod on the nodes that got the highest score, until its placement is seen."""
        counted, nodes = self.source.herd, self.source.table.nodes
        if counted is None or not names:
            return
        highest = max(given)
        best = [name for name, score in zip(names, given, strict=True) if score == highest]
        if len(best) > herd.EXPECTED_NODES:
            best = []
        loads = {name: herd.load_of(pod, nodes.get(name)) for name in best}
        counted.expect(pod.metadata.uid, loads, self.clock.monotonic())

    def _keep(
        self, now: float, verb: Verb, pod: Pod, names: list[str], found: Verdict, added: dict[str, float] | None = None
    ) -> None:
        if found.refused:
            self.metrics.refused.labels(verb).inc(len(found.refused))
        if found.waived:
            self.metrics.waived.inc(len(found.waived))
        self.decisions.add(now, verb, pod, names, self.source.table, found, self.rules, added or {})

    def explain_pod(self, pod: str, limit: int = 10) -> dict[str, Any]:
        """Return the newest decisions about a pod, named ``namespace/name``; none is an empty list."""
        found: list[dict[str, Any]] = []
        for decision in self.decisions.of_pod(pod):
            if len(found) == limit:
                break
            found.append(decisions.explain(decision))
        return {"pod": pod, "decisions": found}

    def explain_node(self, node: str, limit: int = 10) -> dict[str, Any]:
        """Return what is held of a node now, and the newest pods that were kept from it."""
        now = self.clock.wall()
        refused: list[dict[str, Any]] = []
        for decision in self.decisions.refusing(node):
            if len(refused) == limit:
                break
            refused.append(
                {"time": timestamp.render(decision.at), "pod": decision.pod, "reason": decision.refused[node]}
            )
        return {"node": node, **decisions.describe_row(self.source.table.rows.get(node), now), "refused": refused}

    def readiness(self) -> dict[str, Any]:
        """Return the state of what the answers stand on. The process is ready in any state: unknown passes."""
        counts = self.source.table.freshness(self.clock.wall())
        return {
            "ready": True,
            "neutral": counts.fresh == 0,
            "reports": {
                "fresh": counts.fresh,
                "unknown": counts.unknown,
                "expired": counts.expired,
                "malformed": self.source.malformed,
            },
            "kata": "judged" if self.source.table.runtime_classes is not None else "unknown",
            "source": self.source.describe(),
            "preset": self.rules.preset,
            "appliesTo": self.rules.applies_to,
        }
