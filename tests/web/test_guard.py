import httpx
import pytest

from cotenant.web.guard import AllowedHosts, Keys, host_name

ROLLBACK = "/api/v1/rules/rollback"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:7070", "localhost"),
        ("LOCALHOST", "localhost"),
        ("[::1]:7070", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("", None),
        (":7070", None),
        ("a:b", None),
        ("[::1", None),
        ("[::1]x", None),
        ("::1", None),
    ],
)
def test_host_name(host: str, name: str | None) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    ("listen", "host", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:7070", True),
        ("127.0.0.1", "localhost:7070", True),
        ("127.0.0.1", "[::1]:7070", True),
        ("127.0.0.1", "evil.example:7070", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "10.0.0.1:7070", False),
        ("10.0.0.1", "10.0.0.1:7070", True),
        ("10.0.0.1", "10.0.0.2:7070", False),
        ("0.0.0.0", "10.0.0.2:7070", True),
        ("0.0.0.0", "0.0.0.0:7070", True),
        ("0.0.0.0", "[::]:7070", False),
        ("0.0.0.0", "evil.example", False),
        ("0.0.0.0", "myhost:7070", True),
    ],
)
def test_allowed_hosts(listen: str, host: str, allowed: bool) -> None:
    assert AllowedHosts(listen, frozenset({"myhost"})).allows(host) is allowed


async def test_a_rebound_name_is_refused(client: httpx.AsyncClient) -> None:
    for path in ("/", "/metrics", "/api/v1/sample", "/api/v1/stream", "/healthz"):
        answer = await client.get(path, headers={"Host": "evil.example:7070"})
        assert answer.status_code == 403, path


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:7070", "http://127.0.0.1:9999"])
async def test_another_origin_is_refused_even_with_the_token(
    client: httpx.AsyncClient, authorized: dict[str, str], origin: str
) -> None:
    answer = await client.post(ROLLBACK, headers={"Origin": origin, **authorized})
    assert answer.status_code == 403
    assert (await client.get("/api/v1/sample", headers={"Origin": origin})).status_code == 403


async def test_a_change_needs_the_token(client, feed, authorized) -> None:  # type: ignore[no-untyped-def]
    assert (await client.post(ROLLBACK)).status_code == 401
    assert (await client.post(ROLLBACK, headers={"Authorization": "Bearer wrong"})).status_code == 401
    assert feed.rolled_back_to == []
    answer = await client.post(ROLLBACK, headers=authorized, json={"revision": 3})
    assert answer.status_code == 200
    assert feed.rolled_back_to == [3]


async def test_a_session_stands_for_the_token_on_the_own_origin_alone(client, feed, authorized) -> None:  # type: ignore[no-untyped-def]
    opened = await client.post("/api/v1/session", headers=authorized)
    assert opened.status_code == 204
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    client.cookies.clear()
    session = {"Cookie": cookie.partition(";")[0]}
    own = {"Origin": "http://127.0.0.1:7070"}
    assert (await client.post(ROLLBACK, headers=session)).status_code == 401, "no Origin: not a browser's own page"
    assert (await client.post(ROLLBACK, headers=session | {"Origin": "http://evil.example"})).status_code == 403
    assert (await client.post(ROLLBACK, headers=session | own)).status_code == 200
    assert (await client.post(ROLLBACK, headers=own | {"Cookie": "cotenant_7070=guess"})).status_code == 401


async def test_a_cookie_does_not_open_a_session(client: httpx.AsyncClient, keys: Keys) -> None:
    session = keys.open_session().partition(";")[0]
    headers = {"Cookie": session, "Origin": "http://127.0.0.1:7070"}
    assert (await client.post("/api/v1/session", headers=headers)).status_code == 401


def test_sessions_are_bounded(keys: Keys) -> None:
    first = keys.open_session().partition(";")[0]
    assert keys.holds_session({"cookie": first})
    for _ in range(Keys.SESSIONS_LIMIT):
        keys.open_session()
    assert not keys.holds_session({"cookie": first})


async def test_every_answer_has_a_strict_content_security_policy(client: httpx.AsyncClient) -> None:
    for path in ("/", "/static/page.js", "/nowhere"):
        policy = (await client.get(path)).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
