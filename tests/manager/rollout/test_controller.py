"""The loop on an API server of our own: what is read, written and told, through conflicts and restarts."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import prometheus_client
import pytest
from tests.kube.conftest import status
from tests.manager.conftest import EVENTS, NODES, REVISIONS, STATE, Cluster
from tests.waiting import turns, until

from cotenant.api import timestamp
from cotenant.api.rollout import HOLD_ANNOTATION
from cotenant.manager.rollout import controller, machine
from cotenant.manager.rollout.controller import Rollouts

pytestmark = pytest.mark.slow

ROLLOUTS = "apis/cotenant.io/v1alpha1/colocationrollouts"
REPORTS = "apis/cotenant.io/v1alpha1/nodeinterferencereports"
RULES = "apis/cotenant.io/v1alpha1/detectionruleconfigs"
TOLD = "api/v1/namespaces/default/events"
MODE = "cotenant.io/mode"
NAMES = [f"n{number}" for number in range(4)]
SPEC: dict[str, Any] = {
    "change": {"mode": "enforce"},
    "stages": [{"name": "canary", "share": 0.1, "soakSeconds": 5}, {"name": "rest", "soakSeconds": 5}],
    "gates": {"interferenceLevel": {"max": 0.5}},
    "stopping": {"failSeconds": 5, "unknownSeconds": 200},
}


class Fleet:
    """Agents that obey their labels, and an analyzer that writes what they say."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.levels = dict.fromkeys(NAMES, 0.1)
        self.alive = True
        for listed_at in (ROLLOUTS, REPORTS, RULES, TOLD, EVENTS):
            self.api.objects.setdefault(listed_at, {})
        for name in NAMES:
            cluster.add_node(name)

    async def run(self) -> None:
        while True:
            if self.alive:
                self.report()
            await asyncio.sleep(0.02)
            await turns()
            self.cluster.clock.advance(3.0)

    def report(self) -> None:
        wall = self.cluster.clock.wall()
        times = {"observedAt": timestamp.render(wall), "expiresAt": timestamp.render(wall + 1800)}
        for name in list(self.api.objects[NODES]):
            facts = {
                "mode": self.labels(name).get(MODE, "observe"),
                "sloRevision": self.labels(name).get("cotenant.io/slo-revision", "7"),
                "priorityInterface": "mainline-idle",
                "check": {"irreversible": False},
                "counts": {"startedAt": "s"},
            }
            level = self.levels.get(name, 0.1)
            wanted = {"bucket": "low", "interferenceLevel": level, "nodeFacts": facts}
            held = (self.api.objects[REPORTS].get(name) or {}).get("status") or {}
            if {key: held.get(key) for key in wanted} != wanted:
                self.api.put(REPORTS, name, status=wanted | times)
        self.api.put(REPORTS, "cluster", status=times)

    def labels(self, name: str) -> dict[str, str]:
        return dict(self.api.objects[NODES][name]["metadata"].get("labels") or {})

    def modes(self) -> dict[str, str | None]:
        return {name: self.labels(name).get(MODE) for name in NAMES}

    def changed(self) -> list[str]:
        return [name for name in NAMES if MODE in self.labels(name)]

    def rollout(self, name: str = "r", **changes: Any) -> None:
        spec = SPEC | changes
        self.api.put(ROLLOUTS, name, metadata={"uid": f"uid-{name}", "generation": 1}, spec=spec)

    def edit(self, name: str = "r", **changes: Any) -> None:
        found = self.api.objects[ROLLOUTS][name]
        self.api.put(ROLLOUTS, name, **{**found, "spec": found["spec"] | changes})

    def status(self, name: str = "r") -> dict[str, Any]:
        return dict(self.api.objects[ROLLOUTS][name].get("status") or {})

    def phase(self, name: str = "r") -> str:
        return str(self.status(name).get("phase"))

    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.api.objects[TOLD].values()]


@pytest.fixture
async def fleet(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setattr(controller, "TICK_SECONDS", 0.015)
    made = Fleet(cluster)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_to_the_end_with_events_and_metrics(fleet: Fleet) -> None:
    fleet.rollout()
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: len(fleet.changed()) == 1)
        await until(lambda: 'cotenant_rollout_changed_nodes{rollout="r"} 1.0' in metrics(fleet))
        await until(lambda: 'cotenant_rollout_gate_passing{gate="agentHealth",rollout="r"} 1.0' in metrics(fleet))
        await until(lambda: fleet.phase() == "Completed")
        await until(lambda: "Completed" in fleet.reasons())
    assert fleet.modes() == dict.fromkeys(NAMES, "enforce")
    held = [name for name in NAMES if HOLD_ANNOTATION in fleet.api.objects[NODES][name]["metadata"]["annotations"]]
    assert held == []
    assert "StagePassed" in fleet.reasons()
    assert "Completed" in fleet.reasons()


def metrics(fleet: Fleet) -> str:
    return prometheus_client.generate_latest(fleet.cluster.context.metrics).decode()


async def test_a_failing_gate_puts_everything_back(fleet: Fleet) -> None:
    fleet.api.put(NODES, "n0", metadata={"uid": "u", "labels": {MODE: "dry-run"}})
    fleet.rollout(stages=[{"name": "all", "soakSeconds": 500}])
    before = fleet.modes()
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: set(fleet.modes().values()) == {"enforce"})
        fleet.levels["n3"] = 0.9
        await until(lambda: "RolledBack" in fleet.reasons())
    assert fleet.modes() == before
    assert "n3 0.90" in fleet.status()["stopped"]["message"]
    assert "RollingBack" in fleet.reasons()


async def test_pause_resume_and_abort(fleet: Fleet) -> None:
    fleet.rollout()
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: len(fleet.changed()) == 1)
        fleet.edit(paused=True)
        await until(lambda: fleet.phase() == "Paused")
        await asyncio.sleep(0.3)
        assert len(fleet.changed()) == 1
        fleet.edit(paused=False)
        await until(lambda: len(fleet.changed()) > 1)
        fleet.edit(abort=True)
        await until(lambda: fleet.phase() == "RolledBack")
    assert fleet.changed() == []


async def test_a_manager_that_starts_anew_goes_on(fleet: Fleet) -> None:
    fleet.rollout()
    terms = 0
    while fleet.phase() != "Completed":  # each term ends where it has done something
        terms += 1
        assert terms < 200
        seen = (fleet.status(), fleet.modes())
        async with fleet.cluster.running(Rollouts()):
            await until(lambda before=seen: (fleet.status(), fleet.modes()) != before)
    assert fleet.modes() == dict.fromkeys(NAMES, "enforce")
    assert terms > 2


async def test_two_managers_at_once_change_no_node_twice(fleet: Fleet) -> None:
    """They never are, but for a moment; the version of the status and of each node keeps them apart."""
    fleet.rollout(entry={"maxUnconfirmed": 1})
    async with fleet.cluster.running(Rollouts(), Rollouts()):
        await until(lambda: fleet.phase() == "Completed")
    patches = [(body or {}).get("metadata") or {} for body in fleet.api.bodies]
    written = [(metadata.get("annotations") or {}).get(HOLD_ANNOTATION) for metadata in patches]
    was = [msgspec.json.decode(text)["was"] for text in written if text]
    assert all(found == {MODE: None} for found in was), "what was there before is never our own value"
    assert fleet.modes() == dict.fromkeys(NAMES, "enforce")


async def test_while_the_analyzer_is_silent_nothing_goes_on(fleet: Fleet) -> None:
    fleet.rollout(stages=[{"name": "canary", "share": 0.1, "soakSeconds": 100}, {"name": "rest", "soakSeconds": 5}])
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: len(fleet.changed()) == 1)
        fleet.alive = False
        await until(lambda: any(gate["state"] == "unknown" for gate in fleet.status().get("gates", [])))
        await asyncio.sleep(0.5)
        assert len(fleet.changed()) == 1
        fleet.alive = True
        await until(lambda: fleet.phase() == "Completed")


async def test_the_api_server_away_in_the_middle(fleet: Fleet) -> None:
    fleet.rollout()
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: len(fleet.changed()) == 1)
        fleet.api.away = True
        await asyncio.sleep(0.3)
        fleet.api.away = False
        await until(lambda: fleet.phase() == "Completed")


async def test_conflicts_on_nodes_are_tried_again(fleet: Fleet) -> None:
    for _ in range(4):
        fleet.api.fail(f"PATCH {NODES}", status(409, "Conflict"))
    fleet.rollout()
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: fleet.phase() == "Completed")


async def test_a_cluster_without_the_kind_is_asked_again(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "ABSENT_SECONDS", 0.05)
    del fleet.api.objects[ROLLOUTS]
    async with fleet.cluster.running(Rollouts()):
        await asyncio.sleep(0.2)
        assert "cotenant_rollout_failures_total 0.0" in metrics(fleet)
        fleet.rollout()
        await until(lambda: len(fleet.changed()) == 1)


async def test_a_tick_that_breaks_does_not_end_the_manager(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.rollout()
    decide = machine.step
    monkeypatch.setattr(machine, "step", lambda *_: 1 / 0)
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: "cotenant_rollout_broken_ticks_total 3.0" in metrics(fleet))
        monkeypatch.setattr(machine, "step", decide)
        await until(lambda: len(fleet.changed()) == 1)
    assert len([record for record in caplog.records if "tick broke" in record.message]) == 1


async def test_a_rollout_that_cannot_be_meant_says_so(fleet: Fleet) -> None:
    fleet.rollout(stages=[{"name": "a"}, {"name": "a"}], entry={"require": ["warp-drive"]})
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: "two named a" in fleet.status().get("message", ""))
    assert "no feature warp-drive" in fleet.status()["message"]
    assert fleet.changed() == []


async def test_nodes_of_a_deleted_rollout_are_let_go(fleet: Fleet) -> None:
    fleet.rollout()
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: len(fleet.changed()) == 1)
        (name,) = fleet.changed()
        fleet.api.remove(ROLLOUTS, "r")
        await until(lambda: HOLD_ANNOTATION not in fleet.api.objects[NODES][name]["metadata"]["annotations"])
    assert fleet.changed() == [name]


async def test_rules_reach_the_nodes_stage_by_stage_and_everybody_in_the_end(fleet: Fleet) -> None:
    spec = {"windowSeconds": 20}
    fleet.api.put(RULES, "default", metadata={"generation": 8}, spec={"windowSeconds": 10})
    fleet.api.put(REVISIONS, "rules-default-7", data={"spec": spec}, revision=7)
    fleet.rollout(change={"rules": {"revision": 7}})

    async def analyze() -> None:
        while True:
            for name, found in list(fleet.api.objects[RULES].items()):
                metadata = found["metadata"]
                generation = metadata.get("generation") or 1
                if metadata.get("spec") != found["spec"]:
                    generation += 1
                told = {"activeGeneration": generation}
                if found.get("status") != told:
                    changed = {**metadata, "generation": generation, "spec": found["spec"]}
                    fleet.api.put(RULES, name, **{**found, "metadata": changed, "status": told})
            await asyncio.sleep(0.02)

    analyzing = asyncio.create_task(analyze())
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: "rollout-r" in fleet.api.objects[RULES])
        own = fleet.api.objects[RULES]["rollout-r"]["spec"]
        assert own == {"windowSeconds": 20, "nodeSelector": {"cotenant.io/rules-rollout": "r"}}
        await until(lambda: any("cotenant.io/rules-rollout" in fleet.labels(name) for name in NAMES))
        assert fleet.api.objects[RULES]["default"]["spec"] == {"windowSeconds": 10}
        await until(lambda: fleet.phase() == "Completed")
    analyzing.cancel()
    await asyncio.gather(analyzing, return_exceptions=True)
    assert fleet.api.objects[RULES]["default"]["spec"] == spec
    assert set(fleet.api.objects[RULES]) == {"default"}
    assert not any("cotenant.io/rules-rollout" in fleet.labels(name) for name in NAMES)


async def test_a_revision_of_an_earlier_object_of_the_name_is_not_rolled_out(fleet: Fleet) -> None:
    fleet.api.put(RULES, "default", metadata={"generation": 8, "uid": "again"}, spec={})
    fleet.api.put(REVISIONS, "rules-default-7", metadata={"ownerReferences": [{"uid": "gone"}]}, data={}, revision=7)
    fleet.rollout(change={"rules": {"revision": 7}})
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: "no revision 7 of rules default" in str(fleet.api.objects[ROLLOUTS]["r"].get("status")))
    assert set(fleet.api.objects[RULES]) == {"default"}


async def test_an_slo_revision_reaches_the_nodes_and_becomes_everybody_s(fleet: Fleet) -> None:
    fleet.api.put(REVISIONS, "slo-config-8", revision=8)
    fleet.api.put(STATE, "cotenant-slo-config", data={"active": "7"})
    fleet.cluster.write_config({"cotenant.io/slo-changes": "staged"})
    fleet.rollout(change={"nodeSLO": "8"})
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: sum(fleet.labels(name).get("cotenant.io/slo-revision") == "8" for name in NAMES) == 1)
        assert fleet.api.objects[STATE]["cotenant-slo-config"]["data"]["active"] == "7"
        await until(lambda: fleet.phase() == "Completed")
    assert fleet.api.objects[STATE]["cotenant-slo-config"]["data"]["active"] == "8"
    assert not any("cotenant.io/slo-revision" in fleet.labels(name) for name in NAMES), "no pin outlives the rollout"


async def test_an_slo_revision_needs_staged_changes(fleet: Fleet) -> None:
    fleet.api.put(REVISIONS, "slo-config-8", revision=8)
    fleet.cluster.write_config()
    fleet.rollout(change={"nodeSLO": "8"})
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: fleet.phase() == "RolledBack")
    assert "needs the annotation cotenant.io/slo-changes: staged" in fleet.status()["stopped"]["message"]


async def test_a_rollout_that_is_edited_into_nonsense_rests(fleet: Fleet) -> None:
    fleet.rollout()
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: len(fleet.changed()) == 1)
        fleet.edit(entry={"require": ["warp-drive"]})
        await until(lambda: fleet.phase() == "Paused")
        assert "no feature warp-drive" in fleet.status()["message"]
        await asyncio.sleep(0.2)
        assert len(fleet.changed()) == 1
        fleet.edit(abort=True)
        await until(lambda: fleet.phase() == "RolledBack")
    assert fleet.changed() == []


async def test_an_slo_revision_that_is_not_there_stops_before_any_node(fleet: Fleet) -> None:
    fleet.rollout(change={"nodeSLO": "9"})
    async with fleet.cluster.running(Rollouts()):
        await until(lambda: fleet.phase() == "RolledBack")
    assert "there is no SLO revision 9" in fleet.status()["stopped"]["message"]
    assert fleet.cluster.writes(f"{NODES}/") == 0
