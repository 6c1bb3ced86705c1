"""The verdict writer against an API server of our own."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.kube.conftest import ApiServer
from tests.kube.following import caught_up

from cotenant.api import marks, timestamp
from cotenant.api.objects import Node
from cotenant.kube import errors
from cotenant.kube.client import NODES, Client
from cotenant.scheduler import marking
from cotenant.scheduler.cluster import ClusterSource
from cotenant.scheduler.marking import Marker, Settings
from cotenant.units.clock import ManualClock

AT_NODES = "api/v1/nodes"
AT_REPORTS = "apis/cotenant.io/v1alpha1/nodeinterferencereports"
AT_CLASSES = "apis/node.k8s.io/v1/runtimeclasses"
AT_LEASES = "apis/coordination.k8s.io/v1/namespaces/tests/leases"

Step = Callable[..., Awaitable[None]]


class World:
    """Nodes and reports on the server, and leaders that follow it."""

    def __init__(self, server: ApiServer, opened: Client) -> None:
        self.server, self.client, self.clock = server, opened, ManualClock()
        for listed_at in (AT_NODES, AT_REPORTS, AT_CLASSES, AT_LEASES):
            server.objects.setdefault(listed_at, {})
        self.tasks: list[asyncio.Task[None]] = []
        self.sources: list[ClusterSource] = []
        self.renewals = 0
        self.renew()

    def renew(self) -> None:
        self.renewals += 1
        spec = {"holderIdentity": "a", "renewTime": f"2026-01-01T00:00:00.{self.renewals:06}Z"}
        self.server.put(AT_LEASES, "cotenant-analyzer", spec=spec)

    def nodes(self, count: int, **fields: Any) -> None:
        for number in range(count):
            name = f"n{number:02}"
            self.server.put(AT_NODES, name, metadata={"uid": f"u-{name}", "labels": {"zone": "z"}}, **fields)

    def report(self, name: str, bucket: str = "none", hard: tuple[str, ...] = (), **status: Any) -> None:
        expires = timestamp.render(self.clock.wall() + 1800)
        status = {"bucket": bucket, "hard": list(hard), "interferenceLevel": 0.1, "expiresAt": expires, **status}
        self.server.put(AT_REPORTS, name, status=status)

    async def leader(self, **settings: Any) -> Marker:
        source = ClusterSource(self.client, self.clock)
        await source.look_at_lease()
        self.tasks.append(asyncio.create_task(source.keep()))
        self.sources.append(source)
        await self.delivered()
        assert source.may_judge
        return Marker(self.client, source, Settings(**settings), self.clock)

    async def settle(self, marker: Marker, seconds: int = 1) -> None:
        """Let the writer work for some seconds, the analyzer alive."""
        for _ in range(seconds):
            self.clock.advance(1)
            await self.delivered()
            await marker.write_due()
        await self.delivered()

    async def look_at_lease(self) -> None:
        for source in self.sources:
            await source.look_at_lease()

    async def delivered(self) -> None:
        for source in self.sources:
            await caught_up(self.server, source._reports, source._nodes, source._runtime_classes)

    def labels(self, name: str) -> dict[str, str]:
        held = self.server.objects[AT_NODES][name]["metadata"].get("labels", {})
        return {key.removeprefix("cotenant.io/"): value for key, value in held.items() if key.startswith("cotenant")}

    def writes(self) -> int:
        return sum(method == "PATCH" for method, _, _ in self.server.requests)


@pytest.fixture
async def world(api: ApiServer, client: Client) -> Any:
    made = World(api, client)
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_a_hard_limit_is_written_and_taken_off_with_everybody_elses_labels_as_they_are(world: World) -> None:
    world.nodes(3)
    world.report("n00", "severe", ("psiMemoryFull",))
    world.report("n01", "low")
    marker = await world.leader()
    await world.settle(marker)
    assert world.labels("n00") == {"interference": "severe", "avoid-online": "true", "avoid-offline": "true"}
    assert world.labels("n01") == {"interference": "low"}
    assert world.labels("n02") == {}
    node = world.server.objects[AT_NODES]["n00"]
    assert node["metadata"]["annotations"] == {marks.HARD_ANNOTATION: "psiMemoryFull"}
    assert node["metadata"]["labels"]["zone"] == "z"
    assert "taints" not in node.get("spec", {})
    writes = world.writes()
    await world.settle(marker, 3)
    assert world.writes() == writes  # nothing changes, nothing is written
    world.report("n00", "low")
    await world.settle(marker)
    assert world.labels("n00") == {"interference": "low"}
    assert node["metadata"]["uid"] == "u-n00"
    assert marks.HARD_ANNOTATION not in world.server.objects[AT_NODES]["n00"]["metadata"].get("annotations", {})


async def test_a_new_leader_changes_nothing(world: World) -> None:
    world.nodes(40, status={"conditions": []})
    for number in range(40):
        hard = ("psiMemoryFull",) if number < 2 else ()
        world.report(f"n{number:02}", "severe" if hard else "none", hard, nodeFacts={"kata": {"kvm": True}})
    first = await world.leader(max_excluded_fraction=0.05)
    await world.settle(first, 2)
    world.clock.advance(60)  # the rate
    world.renew()
    await world.look_at_lease()
    await world.settle(first, 2)
    world.clock.advance(10)
    await world.settle(first, 3)
    assert [name for name in world.server.objects[AT_NODES] if "avoid-online" in world.labels(name)] == ["n00", "n01"]
    writes = world.writes()
    second = await world.leader(max_excluded_fraction=0.05)
    await world.settle(second, 5)
    assert world.writes() == writes
    assert second.counts.excluded == 2


async def test_caps_leave_the_rest_open_but_annotated_so_that_their_pods_are_woken(world: World) -> None:
    world.nodes(4)
    for name in ("n00", "n01", "n02", "n03"):
        world.report(name, "severe", ("psiMemoryFull",), interferenceLevel=0.9 if name == "n02" else 0.5)
    marker = await world.leader()
    await world.settle(marker, 2)
    assert [name for name in sorted(world.server.objects[AT_NODES]) if "avoid-online" in world.labels(name)] == ["n02"]
    assert (marker.counts.excluded, marker.counts.waiting_for_pool) == (1, 3)
    version = world.server.objects[AT_NODES]["n01"]["metadata"]["resourceVersion"]
    world.report("n01", "severe")  # same bucket, the limit is lifted
    await world.settle(marker, 1)
    assert world.server.objects[AT_NODES]["n01"]["metadata"]["resourceVersion"] != version


@pytest.mark.parametrize(("applies_to", "avoid"), [("online", {"avoid-online"}), ("offline", {"avoid-offline"})])
async def test_applies_to(world: World, applies_to: str, avoid: set[str]) -> None:
    world.nodes(2)
    world.report("n00", "severe", ("psiIoSome",))
    await world.settle(await world.leader(applies_to=applies_to))
    assert set(world.labels("n00")) == {"interference"} | avoid


async def test_where_limits_are_for_nobody_kata_readiness_is_all_that_is_written(world: World) -> None:
    world.server.put(
        AT_CLASSES, "kata", handler="kata", scheduling={"nodeSelector": {"cotenant.io/kata-ready": "true"}}
    )
    world.nodes(2, status={"conditions": [{"type": "Ready", "status": "True"}]})
    world.report("n00", "severe", ("psiIoSome",), nodeFacts={"kata": {"kvm": True, "vhostVsock": True}})
    world.report("n01", "severe", ("psiIoSome",))
    await world.settle(await world.leader(applies_to="none", taints="hard"), 2)
    assert world.labels("n00") == {"kata-ready": "true"}  # a class that selects by it does not keep it from coming
    assert world.labels("n01") == {}
    assert not world.server.objects[AT_NODES]["n00"].get("spec", {}).get("taints")


async def test_a_verdict_ends_with_its_report_or_with_the_analyzer(world: World) -> None:
    world.nodes(2)
    soon = timestamp.render(world.clock.wall() + 10)
    world.report("n00", "severe", ("psiMemoryFull",), expiresAt=soon)
    marker = await world.leader()
    await world.settle(marker, 2)
    assert "avoid-online" in world.labels("n00")
    await world.settle(marker, 10)
    assert world.labels("n00") == {}
    world.report("n00", "severe", ("psiMemoryFull",))
    world.clock.advance(60)  # the rate
    world.renew()
    await world.look_at_lease()
    await world.settle(marker, 2)
    assert "avoid-online" in world.labels("n00")
    world.clock.advance(61)
    await world.look_at_lease()
    await world.settle(marker, 2)
    assert world.labels("n00") == {}


async def test_after_an_outage_of_the_api_server_nothing_is_loosened_before_the_analyzer_can_speak(
    world: World,
) -> None:
    world.nodes(2)
    world.report("n00", "severe", ("psiMemoryFull",))
    marker = await world.leader()
    await world.settle(marker, 2)
    world.server.away = True
    world.clock.advance(90)
    await world.look_at_lease()
    await world.settle(marker, 1)
    world.server.away = False
    await world.look_at_lease()
    assert world.sources[0].table.suspended
    await world.settle(marker, 3)
    assert "avoid-online" in world.labels("n00")
    world.renew()
    await world.look_at_lease()
    await world.settle(marker, 20)
    assert "avoid-online" in world.labels("n00")


async def test_the_switch_takes_every_verdict_off_and_on_again(world: World) -> None:
    world.nodes(2)
    world.report("n00", "severe", ("psiMemoryFull",))
    marker = await world.leader(taints="hard")
    await world.settle(marker, 2)
    assert "avoid-online" in world.labels("n00")
    world.server.put(AT_LEASES, marking.LEASE, metadata={"annotations": {marking.SWITCH_ANNOTATION: "off"}})
    await world.settle(marker, 6)
    assert marker.switched_off
    assert world.labels("n00") == {}
    assert not world.server.objects[AT_NODES]["n00"]["spec"].get("taints")


async def test_noise_at_a_threshold_does_not_make_labels_flap(world: World) -> None:
    world.nodes(1)
    marker = await world.leader()
    for second in range(25):
        world.report("n00", "low" if second % 2 else "medium")
        await world.settle(marker)
    assert marker.counts.label_writes <= 3  # one in ten seconds


async def test_a_node_that_is_gone_is_not_made_anew(world: World) -> None:
    world.nodes(1)
    world.report("n00", "low")
    marker = await world.leader()
    del world.server.objects[AT_NODES]["n00"]  # gone, and the watch has not said so yet
    await world.settle(marker)
    assert "n00" not in world.server.objects[AT_NODES]
    assert marker.counts.failures == 1


async def test_our_taint_comes_and_goes_among_three_writers(world: World) -> None:
    others = [{"key": f"other-{n}", "effect": "NoExecute", "timeAdded": f"2026-01-01T00:00:0{n}Z"} for n in range(2)]
    world.nodes(1, spec={"taints": [others[0]], "podCIDR": "10.0.0.0/24"})
    rounds = {"a": 0, "b": 0}
    done = asyncio.Event()

    async def rewrite(key: str) -> None:
        """Add and take away a taint of our own, by read-modify-write, as node controllers do."""
        while not done.is_set():
            node = await world.client.get(NODES, "n00", dict)
            taints = [taint for taint in node["spec"].get("taints", []) if taint["key"] != key]
            if rounds[key] % 2 == 0:
                taints.append({"key": key, "value": f"{rounds[key]}", "effect": "PreferNoSchedule"})
            version = node["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
            with contextlib.suppress(errors.Conflict):
                await world.client.patch(NODES, "n00", patch)
                rounds[key] += 1
            await asyncio.sleep(0.003)

    async def ours() -> None:
        number = 0
        while number < 12 or min(rounds.values()) < 2:
            with contextlib.suppress(errors.Conflict):  # five times in a row somebody else was first
                await marking.set_taint(world.client, "n00", "NoSchedule" if number % 2 == 0 else None)
            number += 1
            await asyncio.sleep(0.002)
        done.set()

    await asyncio.gather(rewrite("a"), rewrite("b"), ours())
    await marking.set_taint(world.client, "n00", "NoSchedule")
    taints = world.server.objects[AT_NODES]["n00"]["spec"]["taints"]
    assert json.dumps(taints[0]) == json.dumps(others[0])
    assert [taint["key"] for taint in taints].count(marks.TAINT_KEY) == 1
    expected = {"other-0", marks.TAINT_KEY} | {key for key, n in rounds.items() if n % 2}
    assert {taint["key"] for taint in taints} == expected
    assert world.server.objects[AT_NODES]["n00"]["spec"]["podCIDR"] == "10.0.0.0/24"


async def test_clear_takes_off_what_is_ours_and_nothing_else(world: World) -> None:
    world.nodes(2, spec={"taints": [{"key": "theirs", "effect": "NoSchedule"}]})
    world.report("n00", "severe", ("psiMemoryFull",), nodeFacts={"kata": {"kvm": False}})
    marker = await world.leader(taints="soft")
    await world.settle(marker, 2)
    node = world.server.objects[AT_NODES]["n00"]
    assert [taint["effect"] for taint in node["spec"]["taints"]] == ["NoSchedule", "PreferNoSchedule"]
    assert world.labels("n00")["kata-ready"] == "false"
    assert await marking.clear(world.client) == ["n00"]
    node = world.server.objects[AT_NODES]["n00"]
    assert node["spec"]["taints"] == [{"key": "theirs", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"] == {"zone": "z"}
    assert node["status"]["conditions"] == []
    assert await marking.clear(world.client) == []


async def test_kata_ready_says_why_and_since_when(world: World) -> None:
    world.server.put(AT_CLASSES, "kata-qemu", handler="kata-qemu")
    world.nodes(3, status={"conditions": [{"type": "Ready", "status": "True"}], "runtimeHandlers": [{"name": "x"}]})
    facts = {"kata": {"kvm": True, "vhostVsock": True, "handlers": ["kata-qemu"]}}
    world.server.put(AT_NODES, "n00", metadata={"uid": "u", "labels": {}}, status={"conditions": []})
    world.report("n00", nodeFacts=facts)
    world.report("n01", nodeFacts=facts)
    world.report("n02")
    marker = await world.leader()
    await world.settle(marker, 2)

    def condition(name: str) -> dict[str, Any] | None:
        conditions = world.server.objects[AT_NODES][name]["status"]["conditions"]
        return next((one for one in conditions if one["type"] == "KataReady"), None)

    ready, not_ready = condition("n00"), condition("n01")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("True", "Ready")
    assert not_ready is not None
    assert (not_ready["status"], not_ready["reason"]) == ("False", "HandlerNotOffered")
    assert not_ready["message"] == "container runtime offers no handler kata-qemu"
    assert condition("n02") is None
    assert [world.labels(name).get("kata-ready") for name in ("n00", "n01", "n02")] == ["true", "false", None]
    conditions = world.server.objects[AT_NODES]["n01"]["status"]["conditions"]
    assert {one["type"] for one in conditions} == {"Ready", "KataReady"}
    world.report("n00", nodeFacts={"kata": {**facts["kata"], "kvm": False}})
    await world.settle(marker, 12)
    failed = condition("n00")
    assert failed is not None
    assert (failed["status"], failed["reason"]) == ("False", "HostRequirementMissing")
    assert failed["lastTransitionTime"] > ready["lastTransitionTime"]


def test_marks_are_read_as_they_are_written() -> None:
    labels = {"cotenant.io/avoid-offline": "true", "x": "y"}
    node = Node(metadata=Node().metadata.__class__(name="n", labels=labels))
    assert marks.marks_of(node) == marks.Marks(labels={"cotenant.io/avoid-offline": "true"})
    assert marks.marks_of(node).excludes
