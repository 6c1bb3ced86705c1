import json
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from tests.scheduler.conftest import MakeExtender

from cotenant.api.reading import Row
from cotenant.scheduler.extender import Extender
from cotenant.scheduler.server import Endpoints
from cotenant.web.body import BodyReader

Bodies = Callable[[str], bytes]


@pytest.fixture
def extender(make_extender: MakeExtender) -> Extender:
    return make_extender()


@pytest.fixture
async def client(extender: Extender) -> AsyncIterator[httpx.AsyncClient]:
    application = Endpoints(extender, BodyReader(1 << 20, 1 << 20)).application()
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8088") as opened:
        yield opened


async def test_before_anybody_asked(client: httpx.AsyncClient) -> None:
    page = await client.get("/")
    assert page.status_code == 200
    assert "No scheduler has asked yet." in page.text
    assert "Nobody asked about this pod" in (await client.get("/?pod=a/b")).text
    assert "None of late." in (await client.get("/?node=nobody")).text


async def test_the_newest_decisions_lead_to_each_node_with_its_numbers(
    client: httpx.AsyncClient, extender: Extender, request_body: Bodies
) -> None:
    extender.kube_filter(request_body("kube-filter-names"))
    extender.kube_prioritize(request_body("kube-filter-names"))
    pod = extender.decisions.newest(1)[0].pod
    newest = (await client.get("/")).text
    assert newest.index("how good") < newest.index("may it go there")
    assert f"/?pod={pod}" in newest
    shown = (await client.get("/", params={"pod": pod})).text
    for decision in extender.explain_pod(pod)["decisions"]:
        for one in decision["nodes"]:
            assert f">{one['node']}</a>" in shown
            if one["reason"]:
                assert one["reason"] in shown
    refused = next(iter(extender.decisions.newest(2)[1].refused))
    assert "refused: " in shown
    held = (await client.get("/", params={"node": refused})).text
    assert pod in held
    assert "<dt>Hard limits</dt>" in held
    assert extender.decisions.newest(2)[1].refused[refused] in held


async def test_only_so_many_nodes_are_shown_the_refused_ones_last(
    client: httpx.AsyncClient, extender: Extender, request_body: Bodies
) -> None:
    body = json.loads(request_body("kube-filter-names"))
    names = [f"many-{number:03}" for number in range(300)]
    extender.source.table.put(Row(node="many-000", level=0.5, hard=("psiIoSome",), expires_at=4e9))
    extender.kube_filter(json.dumps({**body, "NodeNames": names}).encode())
    shown = (await client.get("/", params={"pod": extender.decisions.newest(1)[0].pod})).text
    assert shown.count("/?node=") == 200
    assert "100 more nodes" in shown
    assert ">many-000<" not in shown


async def test_it_is_for_this_machine_and_changes_nothing(client: httpx.AsyncClient) -> None:
    assert (await client.get("/", headers={"host": "evil.example"})).status_code == 403
    assert "default-src 'none'" in (await client.get("/")).headers["content-security-policy"]
    assert (await client.get("/static/page.css")).status_code == 200
    assert (await client.get("/static/../page.py")).status_code == 404
    assert (await client.post("/")).status_code == 405
    assert "&lt;b&gt;" in (await client.get("/", params={"pod": "<b>/x"})).text
