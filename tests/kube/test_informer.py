import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from tests.waiting import PATIENCE_SECONDS, until

from cotenant.kube.backoff import Backoff
from cotenant.kube.client import NODES, Client
from cotenant.kube.informer import Informer

AT = "api/v1/nodes"


class Meta(msgspec.Struct):
    name: str


class Thing(msgspec.Struct):
    metadata: Meta
    size: int


class Seen:
    """A receiver that keeps what it was told."""

    def __init__(self) -> None:
        self.things: dict[str, int] = {}
        self.replacements = 0
        self.changed = asyncio.Event()

    def replaced(self, objects: dict[str, Thing]) -> None:
        self.things = {key: thing.size for key, thing in objects.items()}
        self.replacements += 1
        self.changed.set()

    def put(self, key: str, value: Thing) -> None:
        self.things[key] = value.size
        self.changed.set()

    def removed(self, key: str) -> None:
        self.things.pop(key, None)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def running(api: Any, client: Client) -> AsyncIterator[tuple[Seen, Informer[Thing]]]:
    """An informer that runs; objects a (1) and b (2) were there before it."""
    api.put(AT, "a", size=1)
    api.put(AT, "b", size=2)
    seen = Seen()
    informer = Informer(client, NODES, Thing, seen, backoff=Backoff(0.01, 0.02))
    task = asyncio.create_task(informer.run())
    yield seen, informer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def lists(api: Any) -> list[str | None]:
    return [
        query.get("resourceVersion") for method, _, query in api.requests if method == "GET" and "watch" not in query
    ]


def watches(api: Any) -> list[str]:
    return [query["resourceVersion"] for _, _, query in api.requests if query.get("watch") == "true"]


async def test_it_lists_from_the_cache_and_follows_the_watch(api: Any, running: tuple[Seen, Informer[Thing]]) -> None:
    seen, informer = running
    await asyncio.wait_for(informer.synced.wait(), PATIENCE_SECONDS)
    assert seen.things == {"a": 1, "b": 2}
    await asyncio.wait_for(api.watched.wait(), PATIENCE_SECONDS)
    api.put(AT, "c", size=3)
    api.put(AT, "a", size=9)
    api.remove(AT, "b")
    await seen.until(lambda: seen.things == {"a": 9, "c": 3})
    assert lists(api) == ["0"]
    assert watches(api) == ["102"]


async def test_pages_are_put_together(api: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.kube.informer.PAGE", 2)
    for number in range(5):
        api.put(AT, f"n{number}", size=number)
    seen = Seen()
    informer = Informer(client, NODES, Thing, seen)
    task = asyncio.create_task(informer.run())
    await seen.until(lambda: len(seen.things) == 5)
    assert seen.replacements == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_broken_watch_goes_on_from_the_last_bookmark(api: Any, running: tuple[Seen, Informer[Thing]]) -> None:
    seen, informer = running
    await asyncio.wait_for(api.watched.wait(), PATIENCE_SECONDS)
    api.tell({"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "500"}}})
    api.tell(None)
    await until(lambda: watches(api) == ["102", "500"])
    assert len(lists(api)) == 1
    assert seen.replacements == 1
    assert informer.malformed == 0


async def test_a_version_that_is_gone_lists_anew_without_one(api: Any, running: tuple[Seen, Informer[Thing]]) -> None:
    seen, _ = running
    await asyncio.wait_for(api.watched.wait(), PATIENCE_SECONDS)
    del api.objects[AT]["b"]  # a deletion that the watch missed
    api.tell({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}})
    await seen.until(lambda: seen.replacements == 2)
    assert seen.things == {"a": 1}
    assert lists(api) == ["0", None]


@pytest.mark.parametrize(
    "answer",
    [
        {"code": 504, "reason": "Timeout", "message": "Too large resource version: 7, current: 3", "details": None},
        {
            "code": 504,
            "reason": "Timeout",
            "message": "x",
            "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]},
        },
        {"code": 410, "reason": "Gone", "message": "x", "details": None},
    ],
)
async def test_a_version_that_is_not_there_yet_lists_anew_without_one(
    api: Any, running: tuple[Seen, Informer[Thing]], answer: dict[str, Any]
) -> None:
    seen, _ = running
    api.fail("watch=true", answer)
    await seen.until(lambda: seen.replacements == 2)
    assert lists(api) == ["0", None]


async def test_failures_back_off_and_what_the_server_asks_for_is_waited(api: Any, client: Client) -> None:
    api.put(AT, "a", size=1)
    api.fail(f"GET {AT}", {"code": 429, "reason": "TooManyRequests", "message": "later"}, {"Retry-After": "0"})
    api.fail(f"GET {AT}", {"code": 500, "reason": "InternalError", "message": "etcd"})
    seen = Seen()
    informer = Informer(client, NODES, Thing, seen, backoff=Backoff(0.01, 0.02))
    task = asyncio.create_task(informer.run())
    await seen.until(lambda: seen.things == {"a": 1})
    assert informer.failures == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_kind_that_is_not_defined_is_asked_for_ever_more_rarely_and_told_once(
    api: Any, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    go_on = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await go_on(0)
        if len(waits) == 12:
            api.put(AT, "late", size=7)

    monkeypatch.setattr("cotenant.kube.informer.asyncio.sleep", sleep)
    caplog.set_level("INFO")
    seen = Seen()
    informer = Informer(client, NODES, Thing, seen, backoff=Backoff(0.01, 0.02), absent=Backoff(5.0, 300.0, seed=1))
    following = asyncio.create_task(informer.run())
    await seen.until(lambda: seen.things == {"late": 7})
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert waits[0] <= 5
    assert 150 <= waits[11] <= 300
    assert sum("again in" in line for line in caplog.messages) == 1


async def test_an_object_of_another_shape_is_passed_over(api: Any, running: tuple[Seen, Informer[Thing]]) -> None:
    seen, informer = running
    await asyncio.wait_for(api.watched.wait(), PATIENCE_SECONDS)
    api.put(AT, "odd", size="large")
    api.put(AT, "c", size=3)
    await seen.until(lambda: "c" in seen.things)
    assert "odd" not in seen.things
    assert informer.malformed == 1


def test_waits_double_up_to_the_limit_and_never_undercut_the_server() -> None:
    backoff = Backoff(1.0, 8.0, seed=1)
    waits = [backoff.next_seconds() for _ in range(6)]
    for wait, full in zip(waits, [1, 2, 4, 8, 8, 8], strict=True):
        assert full / 2 <= wait <= full
    assert backoff.next_seconds(60) == 60
    backoff.reset()
    assert backoff.next_seconds() <= 1.0
