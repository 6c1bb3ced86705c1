"""What ``cotenant uninstall finish`` tells a person."""

import pytest

from cotenant.cli import uninstall
from cotenant.manager.leaving import Message, Outcome

CLEARED = {
    "verdicts": ["n1", "n2"],
    "labels": [],
    "offers": ["n1"],
    "offersKept": ["n3"],
    "removed": ["leases/cotenant-analyzer"],
}


def test_the_pods_to_make_anew_and_the_nodes_that_did_not_answer_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(
        restored={"n1": Message(restored=7, left=1, pods=["u"], more_pods=2), "n2": Message(restored=3)},
        unreached={"n4": "ImagePullBackOff"},
        pods=["batch/job"],
    )
    uninstall._print(outcome, CLEARED)
    assert capsys.readouterr().out.splitlines() == [
        "2 nodes gave back 10 values; 1 cannot be given back",
        "pods to make anew, whose class this kernel does not take back:",
        "  batch/job",
        "  and 2 more: `cotenant restore` on their nodes names them",
        "node n4 was not restored (ImagePullBackOff): run `cotenant restore` there",
        "verdicts taken off 2 nodes, orders off 0, offers of 1",
        "pods still hold batch resources on n3: `cotenant overcommit --clear` when they ended",
        "removed leases/cotenant-analyzer",
    ]


def test_without_the_restoring_pods_only_the_cluster_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    uninstall._print(None, {**CLEARED, "offersKept": [], "removed": []})
    assert capsys.readouterr().out == "verdicts taken off 2 nodes, orders off 0, offers of 1\n"
