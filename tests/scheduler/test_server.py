import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from cotenant.scheduler.extender import Extender
from cotenant.scheduler.metrics import Metrics
from cotenant.scheduler.server import Endpoints
from cotenant.web.body import BodyReader

Bodies = Callable[[str], bytes]
JSON = {"content-type": "application/json"}


def client_of(extender: Extender, max_body_bytes: int = 1 << 20) -> httpx.AsyncClient:
    application = Endpoints(extender, BodyReader(max_body_bytes, max_body_bytes)).application()
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=application), base_url="http://test")


@pytest.fixture
async def client(make_extender: Callable[..., Extender]) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_extender()) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/kube/filter", "kube-filter-names"),
        ("/kube/prioritize", "kube-filter-names"),
        ("/kube/preempt", "kube-preempt-meta"),
        ("/volcano/predicate", "volcano-predicate"),
        ("/volcano/prioritize", "volcano-prioritize"),
    ],
)
async def test_every_verb_answers_json(client: httpx.AsyncClient, request_body: Bodies, path: str, body: str) -> None:
    answer = await client.post(path, content=request_body(body), headers=JSON)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()
    refused = await client.get(path)
    assert (refused.status_code, list(refused.json()), refused.headers["allow"]) == (405, ["error"], "POST")


async def test_a_path_that_is_not_there_is_answered_in_json(client: httpx.AsyncClient) -> None:
    answer = await client.post("/kube/filtr", content=b"{}", headers=JSON)
    assert (answer.status_code, list(answer.json())) == (404, ["error"])
    assert "/kube/filtr" in answer.json()["error"]


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b'{"Pod":' + b"[" * 200_000, JSON, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", JSON | {"content-encoding": "gzip"}, 415),
        (b" " * ((1 << 20) + 1), JSON, 413),
    ],
)
async def test_a_request_that_cannot_be_answered_is_a_4xx_with_one_line(
    client: httpx.AsyncClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await client.post("/kube/filter", content=content, headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert (await client.get("/healthz")).status_code == 200


async def test_a_body_that_does_not_say_its_length_is_bounded_too(client: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1 << 16
            yield b" " * (1 << 16)

    answer = await client.post("/kube/filter", content=endless(), headers=JSON)
    assert answer.status_code == 413
    assert sent <= (9 << 20) + (2 << 16)  # read on for a while, so that a client that sends sees the answer


async def test_a_charset_is_no_other_content_type(client: httpx.AsyncClient, request_body: Bodies) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    answer = await client.post("/kube/filter", content=request_body("kube-filter-names"), headers=headers)
    assert answer.status_code == 200


async def test_a_defect_of_ours_is_a_500_and_a_count(
    make_extender: Callable[..., Extender], request_body: Bodies
) -> None:
    extender = make_extender()
    extender.source.table.limited = None  # type: ignore[assignment]
    extender.source.table.rows["n1"] = None  # type: ignore[assignment]
    extender.source.table.limited = {"n1": None}  # type: ignore[dict-item]
    async with client_of(extender) as client:
        answer = await client.post("/kube/filter", content=request_body("kube-filter-names"), headers=JSON)
        assert answer.status_code == 500
        assert "cotenant_scheduler_internal_errors_total 1.0" in extender.metrics.render().decode()


def test_how_often_the_process_was_started_again_is_told() -> None:
    assert "cotenant_scheduler_restarts_total 3.0" in Metrics(restarts=3).render().decode()


async def test_readiness_tells_of_failing_open(
    make_extender: Callable[..., Extender], write_reports: Callable[[dict[str, dict[str, Any]]], Any]
) -> None:
    extender = make_extender(write_reports({"n1": {"expiresAt": None}}))
    extender.metrics.watch(extender.source, extender.clock)
    async with client_of(extender) as client:
        answer = await client.get("/readyz")
        assert answer.status_code == 200
        state = answer.json()
        assert state["neutral"] is True
        assert state["reports"] == {"fresh": 0, "unknown": 0, "expired": 1, "malformed": 0}
        metrics = (await client.get("/metrics")).text
        assert "cotenant_scheduler_neutral 1.0" in metrics
        assert "process_resident_memory_bytes" in metrics
        assert 'cotenant_scheduler_reports{state="expired"} 1.0' in metrics


async def test_explain(client: httpx.AsyncClient, request_body: Bodies) -> None:
    await client.post("/kube/filter", content=request_body("kube-filter-names"), headers=JSON)
    explained = (await client.get("/explain", params={"pod": "shop/web"})).json()
    assert explained["decisions"][0]["refused"] == 1
    assert (await client.get("/explain", params={"pod": "shop/none"})).json()["decisions"] == []
    assert (await client.get("/explain", params={"node": "n2"})).json()["hard"] == ["psiMemoryFull"]
    assert (await client.get("/explain")).status_code == 400
    assert json.loads((await client.get("/explain", params={"pod": "a"})).content)["error"]
