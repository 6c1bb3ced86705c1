from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.api.objects import ObjectMeta, Pod
from cotenant.api.reading import Row
from cotenant.scheduler.decisions import Decisions, Verb, explain
from cotenant.scheduler.rules import Rules
from cotenant.scheduler.table import Table
from cotenant.scheduler.verdict import Verdict

TABLE = Table([Row(node="a", level=0.5, expires_at=1e9), Row(node="b", hard=("psiIoSome",), expires_at=1e9)])


def pod(name: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="ns"))


def add(ring: Decisions, name: str, nodes: list[str], at: float = 1.0, verb: Verb = "kube/filter") -> None:
    ring.add(at, verb, pod(name), nodes, TABLE, Verdict(refused={n: "why" for n in nodes if n == "b"}), Rules())


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9)), max_size=40), st.booleans())
@settings(max_examples=60)
def test_decisions_and_node_entries_stay_bounded(steps: list[tuple[str, int]], volcano: bool) -> None:
    ring = Decisions(max_decisions=5, max_node_entries=12)
    for at, (name, count) in enumerate(steps):
        add(ring, name, ["a"] * count, float(at), "volcano/predicate" if volcano else "kube/filter")
        held = [decision for key in "xyz" for decision in ring.of_pod(f"ns/{key}")]
        assert len(ring) <= 5
        assert ring.node_entries == sum(len(decision.nodes) for decision in held) <= 12


def test_a_decision_without_its_nodes_keeps_counts_and_refusals() -> None:
    ring = Decisions(max_node_entries=3)
    add(ring, "first", ["a", "b"])
    add(ring, "second", ["a", "b"])
    explained = explain(next(ring.of_pod("ns/first")))
    assert explained["candidates"] == 2
    assert explained["nodesDropped"] == 2
    assert explained["refusals"] == {"b": "why"}
    assert len(explain(next(ring.of_pod("ns/second")))["nodes"]) == 2


def test_questions_of_volcano_about_one_pod_are_one_decision() -> None:
    ring = Decisions()
    add(ring, "p", ["a"], 1.0, "volcano/predicate")
    add(ring, "p", ["b"], 1.5, "volcano/predicate")
    add(ring, "p", ["a"], 9.0, "volcano/predicate")
    newest, oldest = ring.of_pod("ns/p")
    assert len(newest.nodes) == 1
    assert [node["kept"] for node in explain(oldest)["nodes"]] == [True, False]
    assert [decision.pod for decision in ring.refusing("b")] == ["ns/p"]


def test_an_explanation_uses_the_rows_of_its_time() -> None:
    table = Table([Row(node="a", level=0.2, expires_at=1e9, observed_at=0.0)])
    ring = Decisions()
    ring.add(5.0, "kube/prioritize", pod("p"), ["a"], table, Verdict(refused={}), Rules())
    table.put(Row(node="a", level=0.9, expires_at=1e9))
    node = explain(next(ring.of_pod("ns/p")))["nodes"][0]
    assert (node["interferenceLevel"], node["score"], node["ageSeconds"]) == (0.2, 8, 5.0)
