"""The manager's process: who runs when, what it answers, and how it ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import prometheus_client
import pytest
from starlette.applications import Starlette
from tests.kube.conftest import status
from tests.waiting import ended, until

from cotenant.kube.client import Client
from cotenant.kube.elector import Terms
from cotenant.manager import program, server
from cotenant.manager.controller import Context, Readiness
from cotenant.units.clock import ManualClock
from cotenant.units.errors import CotenantError

AT = "apis/coordination.k8s.io/v1/namespaces/cotenant-system/leases"


class Part:
    """Counts its runs and says while it runs."""

    name = "part"

    def __init__(self, running: list[str], fails: bool = False) -> None:
        self._running = running
        self._fails = fails

    async def run(self, context: Context) -> None:
        prometheus_client.Counter("part_runs", "Runs.", registry=context.metrics).inc()
        if self._fails:
            raise CotenantError("the end")
        self._running.append(self.name)
        try:
            await asyncio.Event().wait()
        finally:
            self._running.remove(self.name)


def made(client: Client, *, controllers: list[Any], servers: list[Any] | None = None) -> program.Manager:
    context = Context(client=client, clock=ManualClock(), namespace="cotenant-system")
    return program.Manager(context, controllers, servers or [])


async def test_controllers_run_only_where_the_lease_is_held_and_servers_everywhere(api: Any, client: Client) -> None:
    running: list[str] = []
    answering: list[str] = []
    parts = {"controllers": [lambda: Part(running)], "servers": [lambda: Part(answering)]}
    first, second = made(client, **parts), made(client, **parts)
    leading = asyncio.create_task(first.run())
    await until(lambda: running == ["part"])
    waiting = asyncio.create_task(second.run())
    await until(lambda: second.elector.leader == first.elector.identity)
    assert (len(running), len(answering)) == (1, 2)
    assert api.objects[AT]["cotenant-manager"]["spec"]["holderIdentity"] == first.elector.identity
    await ended(leading, waiting)
    assert (running, answering) == ([], [])


def test_every_controller_is_constructed_without_arguments_and_has_a_name() -> None:
    names = [make().name for make in (*program.CONTROLLERS, *program.SERVERS)]
    assert len(names) == len(set(names))
    assert {"slo-config", "node-slo", "node-metric"} <= set(names)


async def test_a_term_begins_anew_and_its_metrics_end_with_it(api: Any, client: Client) -> None:
    running: list[str] = []
    manager = made(client, controllers=[lambda: Part(running)])
    for _ in range(2):
        leading = asyncio.create_task(manager.elector.campaign(manager._lead))
        await until(lambda: running == ["part"])
        text = manager.metrics_text().decode()
        assert "part_runs_total 1.0" in text  # registered again, from zero
        assert "cotenant_manager_leading 1.0" in text
        await ended(leading)
        assert "part_runs" not in manager.metrics_text().decode()


async def test_without_its_namespace_it_is_not_ready_and_says_why(api: Any, client: Client) -> None:
    gone = status(404, "NotFound", 'namespaces "cotenant-system" not found')
    for _ in range(1000):
        api.fail(f"POST {AT}", gone)
    manager = made(client, controllers=[])
    manager.elector._terms = Terms(retry=0.01)
    readiness = manager._context.readiness
    running = asyncio.create_task(manager.run())
    await until(lambda: "namespaces" in readiness.waiting.get("lease", ""))
    api.failures.clear()
    await until(lambda: not readiness.waiting)
    assert manager.elector.leading
    await ended(running)


async def test_what_a_part_raises_ends_the_manager_and_gives_the_lease_up(api: Any, client: Client) -> None:
    manager = made(client, controllers=[lambda: Part([], fails=True)])
    with pytest.raises(ExceptionGroup) as raised:
        await manager.run()
    assert raised.group_contains(CotenantError, match="the end")
    assert api.objects[AT]["cotenant-manager"]["spec"].get("holderIdentity", "") == ""


@pytest.fixture
def asked() -> Callable[[Starlette, str], Any]:
    async def ask(application: Starlette, path: str) -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://manager") as asking:
            return await asking.get(path)

    return ask


async def test_probes_say_what_is_waited_for(asked: Any) -> None:
    readiness = Readiness()
    application = server.application(lambda: b"", readiness)
    assert (await asked(application, "/healthz")).status_code == 200
    readiness.wait_for("webhook", "no certificate yet")
    answer = await asked(application, "/readyz")
    assert (answer.status_code, answer.text) == (503, "webhook: no certificate yet\n")
    readiness.ready("webhook")
    assert (await asked(application, "/readyz")).status_code == 200
