import asyncio
from typing import Any

import pytest
from tests.waiting import PATIENCE_SECONDS, until

from cotenant.kube import elector
from cotenant.kube.client import Client
from cotenant.kube.elector import Elector, Terms
from cotenant.units.clock import ManualClock

AT = "apis/coordination.k8s.io/v1/namespaces/tests/leases"
QUICK = Terms(lease=60, renew=30, retry=0.005)
"""By the test's clock; but what is left of them bounds a request, in time that passes."""


def candidate(client: Client, identity: str, clock: ManualClock, terms: Terms = QUICK) -> Elector:
    return Elector(client, "lead", identity, clock, namespace="tests", terms=terms)


async def forever() -> None:
    await asyncio.Event().wait()


def holder(api: Any) -> str:
    return str(api.objects[AT]["lead"]["spec"]["holderIdentity"])


async def end(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_terms_that_would_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="two could lead"):
        Terms(lease=5, renew=7)


async def test_one_leads_and_the_other_waits(api: Any, client: Client) -> None:
    clock = ManualClock()
    first, second = candidate(client, "first", clock), candidate(client, "second", clock)
    leading = asyncio.create_task(first.campaign(forever))
    await until(lambda: first.leading)
    waiting = asyncio.create_task(second.campaign(forever))
    await until(lambda: second.leader == "first")
    for _ in range(20):  # renewals keep the other out for much longer than a lease
        version = api.version
        clock.advance(20)
        # Twice: the first renewal may have been under way, with the time before, when the clock moved.
        await until(lambda before=version: api.version > before + 1)
        assert not second.leading
    assert holder(api) == "first"
    await end(leading, waiting)


async def test_a_leader_that_ends_gives_the_lease_up(api: Any, client: Client) -> None:
    clock = ManualClock()
    first, second = candidate(client, "first", clock), candidate(client, "second", clock)
    leading = asyncio.create_task(first.campaign(forever))
    await until(lambda: first.leading)
    waiting = asyncio.create_task(second.campaign(forever))
    await end(leading)
    await until(lambda: second.leading)  # the clock never moved: it did not have to wait for the lease to run out
    assert api.objects[AT]["lead"]["spec"]["leaseTransitions"] == 1
    await end(waiting)


async def test_a_dead_leader_is_replaced_when_its_lease_ran_out_by_our_clock(api: Any, client: Client) -> None:
    clock = ManualClock()
    api.put(AT, "lead", spec={
        "holderIdentity": "dead", "leaseDurationSeconds": 10, "renewTime": "2001-01-01T00:00:00.000000Z",
        "leaseTransitions": 4,
    })  # fmt: skip
    elector = candidate(client, "new", clock)
    waiting = asyncio.create_task(elector.campaign(forever))
    await until(lambda: elector.leader == "dead")
    await asyncio.sleep(0.1)
    assert not elector.leading  # the renew time is another machine's clock: it says nothing
    clock.advance(10.1)
    await until(lambda: elector.leading)
    assert api.objects[AT]["lead"]["spec"]["leaseTransitions"] == 5
    await end(waiting)


async def test_a_leader_that_cannot_renew_stops_before_another_may_start(
    api: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    elector = candidate(client, "first", clock)
    stopped, attempt, attempts = asyncio.Event(), elector._attempt, 0

    async def counted() -> bool:
        nonlocal attempts
        try:
            return await attempt()
        finally:
            attempts += 1

    monkeypatch.setattr(elector, "_attempt", counted)

    async def lead() -> None:
        try:
            await forever()
        finally:
            stopped.set()

    leading = asyncio.create_task(elector.campaign(lead))
    await until(lambda: elector.leading)
    api.away, since = True, clock.monotonic()
    while not stopped.is_set():
        before = attempts
        clock.advance(5)
        await until(lambda: stopped.is_set() or attempts > before + 1)  # noqa: B023 - ends before it changes
    assert clock.monotonic() - since < QUICK.lease
    await asyncio.wait_for(leading, PATIENCE_SECONDS)
    assert not elector.leading
    api.away = False


async def test_a_lease_counts_from_when_its_renewal_was_sent(
    api: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    elector = candidate(client, "first", clock)
    replace = client.replace

    async def late(*arguments: Any, **named: Any) -> Any:
        answer = await replace(*arguments, **named)
        clock.advance(QUICK.renew + 1)  # others have counted since the server took it
        return answer

    leading = asyncio.create_task(elector.campaign(forever))
    await until(lambda: elector.leading)
    monkeypatch.setattr(client, "replace", late)
    await asyncio.wait_for(leading, 60)
    assert not elector.leading


async def test_who_held_the_lease_last_is_known_until_somebody_else_is_seen_in_it(api: Any, client: Client) -> None:
    clock = ManualClock()
    elector = candidate(client, "first", clock)
    assert not elector.held_within(30)
    assert await elector._attempt()
    api.away = True
    clock.advance(29)
    assert not await elector._attempt()
    assert elector.held_within(30)
    clock.advance(2)
    assert not elector.held_within(30)
    api.away = False
    assert await elector._attempt()
    api.objects[AT]["lead"]["spec"]["holderIdentity"] = "second"
    assert not await elector._attempt()
    assert not elector.held_within(30)


async def test_a_page_instead_of_a_lease_ends_nobody(api: Any, client: Client) -> None:
    elector = candidate(client, "first", ManualClock())
    api.put(AT, "lead", spec={"holderIdentity": 3})
    assert not await elector._attempt()
    assert elector.last_error is not None
    assert "not what was asked for" in elector.last_error


async def test_losing_a_race_to_write_is_not_leading(api: Any, client: Client) -> None:
    clock = ManualClock()
    api.put(AT, "lead", spec={"holderIdentity": ""})
    api.fail(f"PUT {AT}", {"code": 409, "reason": "Conflict", "message": "changed"})
    elector = candidate(client, "slow", clock)
    assert not await elector._attempt()
    assert await elector._attempt()
    assert holder(api) == "slow"


async def test_an_error_of_the_work_is_raised_and_the_lease_given_up(api: Any, client: Client) -> None:
    elector = candidate(client, "first", ManualClock())

    async def fail() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await elector.campaign(fail)
    assert holder(api) == ""


async def test_who_lost_the_lease_stands_again(api: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elector, "PAUSE_SECONDS", 0.0)
    candidacy, terms = candidate(client, "first", ManualClock()), 0

    async def lead() -> None:
        nonlocal terms
        terms += 1
        if terms == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        await candidacy.stand(lead)
    assert terms == 3
    assert holder(api) == ""
