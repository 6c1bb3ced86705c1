import re
from collections.abc import Iterator

import httpx
import msgspec
import pytest
from starlette.types import Message
from tests.web.conftest import TOKEN

from cotenant.web import openapi
from cotenant.web.application import Site


async def test_every_path_answers_per_its_schema(client: httpx.AsyncClient, hurt) -> None:  # type: ignore[no-untyped-def]
    document = (await client.get("/api/v1/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    for path, (struct, _) in openapi.READ_PATHS.items():
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert schema["$ref"].removeprefix("#/components/schemas/") in document["components"]["schemas"]
        answer = await client.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-type"] == "application/json"
        value = msgspec.json.decode(answer.content, type=struct)
        assert msgspec.json.decode(msgspec.json.encode(value)) == answer.json(), "the answer has what the schema lacks"


async def test_every_route_is_described(client: httpx.AsyncClient, site) -> None:  # type: ignore[no-untyped-def]
    described = set(openapi.document()["paths"])
    routes = {route.path for route in site.application._app.routes if route.path.startswith("/api/")}
    assert routes - {"/api/v1/openapi.json"} == described


async def test_the_sample_is_the_sample(client: httpx.AsyncClient) -> None:
    body = (await client.get("/api/v1/sample")).json()
    assert body["block"]["p99_usec"] == 65000
    assert body["cpu"]["steal_ratio"] is None
    assert body["missing"]["llc"] == "no_pmu"
    assert body["cgroups"][0]["class"] == "online"


async def test_before_the_first_sample(client, feed, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("cotenant.web.application.FIRST_SAMPLE_TIMEOUT_SECONDS", 0.0)
    feed.moment = None
    assert (await client.get("/healthz")).status_code == 200
    for path in ("/readyz", "/", "/api/v1/sample", "/api/v1/report", "/api/v1/cgroups"):
        assert (await client.get(path)).status_code == 503, path
    assert "cotenant_sample_age_seconds" not in (await client.get("/metrics")).text


async def test_ready_until_samples_stop(client, feed) -> None:  # type: ignore[no-untyped-def]
    assert (await client.get("/readyz")).status_code == 200
    feed.age = 11.0
    assert (await client.get("/readyz")).status_code == 503


@pytest.mark.parametrize("value", ["0", "-1", "86401", "x", "1e3", "", "9" * 30])
async def test_bad_spans_are_refused(client: httpx.AsyncClient, value: str) -> None:
    answer = await client.get("/api/v1/history", params={"seconds": value})
    assert answer.status_code == 400
    assert "seconds" in answer.json()["error"]


async def test_without_history(client: httpx.AsyncClient, full_disk) -> None:  # type: ignore[no-untyped-def]
    assert (await client.get("/api/v1/history")).status_code == 503
    assert (await client.get("/api/v1/incidents")).status_code == 503
    page = await client.get("/")
    assert page.status_code == 200
    assert "No history is kept" in page.text
    assert "cotenant_history_failed 1.0" in (await client.get("/metrics")).text


async def test_the_page_shows_real_values_at_first_paint(client: httpx.AsyncClient, hurt) -> None:  # type: ignore[no-untyped-def]
    page = (await client.get("/")).text
    assert "web.service is hurt" in page
    assert "65 ms" in page
    assert "90 % sure" in page
    assert "no hardware performance counters here" in page
    assert "cotenant was not running" in page
    assert not re.search(r"<script(?![^>]* src=)", page), "no inline script"
    assert " style=" not in page
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page), "nothing from a network"


async def test_a_bad_rules_file_is_on_the_page_and_escaped(client: httpx.AsyncClient, bad_rules) -> None:  # type: ignore[no-untyped-def]
    page = (await client.get("/")).text
    assert "rules file was refused" in page
    assert "did you mean &lt;windowSeconds&gt;" in page
    assert "cotenant_rules_rejected 1.0" in (await client.get("/metrics")).text


async def test_static_files(client: httpx.AsyncClient) -> None:
    for name in ("page.css", "page.js", "chart.js", "icon.svg", "dygraph.js"):
        assert (await client.get(f"/static/{name}")).status_code == 200, name
    assert (await client.get("/static/..%2fpage.py")).status_code == 404
    assert "Dygraph" in (await client.get("/static/dygraph.js")).text


async def test_rolling_back(client, feed, authorized) -> None:  # type: ignore[no-untyped-def]
    path = "/api/v1/rules/rollback"
    assert (await client.post(path, headers=authorized, json={"revision": 99})).status_code == 409
    assert (await client.post(path, headers=authorized, content=b"nonsense")).status_code == 400
    assert (await client.post(path, headers=authorized, json={"revisions": 1})).status_code == 400
    assert (await client.post(path, headers=authorized, content=b"x" * 5000)).status_code == 413
    assert (await client.post(path, headers=authorized)).json()["revision"] is None
    assert feed.rolled_back_to == [None]
    assert (await client.get(path)).status_code == 405


async def test_a_client_that_leaves_while_it_sends_is_no_failure(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    messages: Iterator[Message] = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )
    sent: list[Message] = []

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:7070"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/rules/rollback",
        "headers": headers,
        "query_string": b"",
    }
    await site.application(scope, receive, send)
    assert sent[0]["status"] == 400
    assert not caplog.records
