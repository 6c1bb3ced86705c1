"""The leader's part: certificates, and the configurations that trust them."""

import asyncio
import json

import pytest
from tests.kube.conftest import ApiServer
from tests.manager.webhook.world import (
    DAY,
    MUTATING,
    VALIDATING,
    bundles,
    context_of,
    running,
    stored,
)
from tests.waiting import until

from cotenant.kube.client import Client
from cotenant.manager.webhook import registration
from cotenant.manager.webhook.registering import WebhookRegistrar
from cotenant.manager.webhook.server import WebhookServer
from cotenant.units.clock import ManualClock

pytestmark = pytest.mark.usefixtures("soon")


async def test_by_hand_everything_is_registered_and_trusted(api: ApiServer, client: Client) -> None:
    async with running(WebhookRegistrar(), context_of(client, ManualClock(), register=True)):
        await until(lambda: bundles(api, MUTATING) and bundles(api, VALIDATING))
        assert bundles(api, MUTATING) == bundles(api, VALIDATING) == {stored(api, "ca.crt")}
        urls = [webhook["clientConfig"]["url"] for webhook in api.objects[VALIDATING]["cotenant-webhook"]["webhooks"]]
    assert urls[0] == "https://127.0.0.1:9443/validate-pods"
    assert "https://127.0.0.1:9443/validate-profiles" in urls


async def test_what_a_chart_wrote_is_only_filled_in(api: ApiServer, client: Client) -> None:
    configs = {path: registration.by_service("svc", "cotenant-system", path) for path in registration.PATHS}
    written = registration.mutating("cotenant-webhook", "cotenant-system", configs)
    api.put(MUTATING, "cotenant-webhook", **json.loads(json.dumps(written)))
    async with running(WebhookRegistrar(), context_of(client, ManualClock())):
        await until(lambda: bundles(api, MUTATING) == {stored(api, "ca.crt")} != {None})
        assert VALIDATING not in api.objects
        found = api.objects[MUTATING]["cotenant-webhook"]["webhooks"]
        assert [one["rules"] for one in found] == [one["rules"] for one in written["webhooks"]]
        api.objects[MUTATING]["cotenant-webhook"]["webhooks"][0]["clientConfig"]["caBundle"] = "else"
        await until(lambda: bundles(api, MUTATING) == {stored(api, "ca.crt")})
    methods = {method for method, path, _ in api.requests if path.startswith(MUTATING)}
    assert methods == {"GET", "PATCH"}


async def test_certificates_are_replaced_in_time_and_a_new_authority_is_known_first(
    api: ApiServer, client: Client
) -> None:
    clock = ManualClock()
    async with running(WebhookRegistrar(), context_of(client, clock, register=True)):
        await until(lambda: bundles(api, MUTATING))
        first = stored(api, "tls.crt")
        clock.advance(21 * DAY)
        await until(lambda: stored(api, "tls.crt") != first)
        second, authority = stored(api, "tls.crt"), stored(api, "ca.crt")
        clock.advance(230 * DAY)
        await until(lambda: stored(api, "tls.crt") != second)
        await until(lambda: bundles(api, MUTATING) == bundles(api, VALIDATING) == {stored(api, "ca.crt")})
    written = [body["data"] for body in api.bodies if body and "ca.key" in (body.get("data") or {})]
    both = next(index for index, data in enumerate(written) if data["ca.crt"] != authority)
    assert (written[both]["tls.crt"], written[both + 1]["ca.crt"]) == (second, written[both]["ca.crt"])
    trusted = [body["webhooks"][0]["clientConfig"]["caBundle"] for body in api.bodies if body and "webhooks" in body]
    assert written[both]["ca.crt"] in trusted


async def test_two_leaders_at_once_end_with_one_set(api: ApiServer, client: Client) -> None:
    async with (
        running(WebhookRegistrar(), context_of(client, ManualClock(), register=True)),
        running(WebhookRegistrar(), context_of(client, ManualClock(), register=True)),
    ):
        await until(lambda: bundles(api, MUTATING) and bundles(api, VALIDATING))
        await until(lambda: bundles(api, MUTATING) == bundles(api, VALIDATING) == {stored(api, "ca.crt")})


async def test_an_outage_is_waited_out(api: ApiServer, client: Client) -> None:
    api.away = True
    async with running(WebhookRegistrar(), context_of(client, ManualClock(), register=True)):
        await asyncio.sleep(0.05)
        api.away = False
        await until(lambda: bundles(api, VALIDATING))


async def test_without_an_address_there_is_no_webhook(api: ApiServer, client: Client) -> None:
    context = context_of(client, ManualClock(), listen="")
    await WebhookRegistrar().run(context)
    await WebhookServer().run(context)
    assert api.requests == []
