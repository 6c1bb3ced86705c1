import base64
import pathlib
import socket

import pytest
from tests.latency.conftest import Server

from cotenant.latency import fetching
from cotenant.latency.errors import BadSource, Refused, Unreadable


def test_an_answer_and_its_type(server: Server, tmp_path: pathlib.Path) -> None:
    server.answers["/x"] = (200, "text/plain", b"hello")
    token = tmp_path / "token"
    token.write_text("secret\n")
    got = fetching.get(f"{server.url}/x?a=b", {"Accept": "text/plain"}, fetching.Trust(token_file=token))
    assert got == (b"hello", "text/plain")
    path, headers = server.seen[0]
    assert path == "/x?a=b"
    assert headers["Accept"] == "text/plain"
    assert headers["Authorization"] == "Bearer secret"


def test_a_refusal_says_where_and_why_and_hides_the_query(server: Server) -> None:
    with pytest.raises(Unreadable, match=r"/y: 404 Not Found nothing here$") as caught:
        fetching.get(f"{server.url}/y?token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/prom/api?token=secret", "write the address that it names, /prom/api$"),
        ("https://u:secret@other:9090/x?token=secret", "write the address that it names, https://other:9090/x$"),
    ],
)
def test_a_redirect_names_where_to_and_no_secret(server: Server, place: str, said: str) -> None:
    server.answers["/r"] = (302, "text/plain", b"")
    server.headers["/r"] = {"Location": place}
    with pytest.raises(Refused, match=f"302 Found; redirects are not followed: {said}"):
        fetching.get(f"{server.url}/r")


def test_a_server_that_is_busy_says_for_how_long(server: Server) -> None:
    server.answers["/b"] = (429, "text/plain", b"slow down")
    for said, seconds in (("7", 7.0), ("Mon, 30 Nov 2026 00:00:00 GMT", None)):
        server.headers["/b"] = {"Retry-After": said}
        with pytest.raises(Refused, match="429 Too Many Requests slow down") as raised:
            fetching.get(f"{server.url}/b")
        assert (raised.value.status, raised.value.wait_seconds) == (429, seconds)


def test_a_user_and_a_password(server: Server, tmp_path: pathlib.Path) -> None:
    server.answers["/x"] = (200, "text/plain", b"hello")
    (tmp_path / "user").write_text("reader:pässword\n")
    fetching.get(f"{server.url}/x", trust=fetching.Trust(basic_auth_file=tmp_path / "user"))
    scheme, _, coded = server.seen[0][1]["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(coded).decode()) == ("Basic", "reader:pässword")


@pytest.mark.parametrize("content", [b"", b"two\nlines:x", b"\xff:x", b"without a colon"])
def test_a_file_that_holds_no_password_is_named(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "user").write_bytes(content)
    with pytest.raises(Unreadable, match=r"/user: not (one line of text|USER:PASSWORD)$"):
        fetching.get("http://127.0.0.1:1/", trust=fetching.Trust(basic_auth_file=tmp_path / "user"))


def test_a_token_is_plain_text(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("tökén")
    with pytest.raises(Unreadable, match="/token: not a token"):
        fetching.get("http://127.0.0.1:1/", trust=fetching.Trust(token_file=tmp_path / "token"))


def test_an_address_with_a_password_is_refused_without_it() -> None:
    with pytest.raises(BadSource, match="http://host:9090/: an address names no user") as raised:
        fetching.check_url("http://user:secret@host:9090/")
    assert "secret" not in str(raised.value)


def test_one_byte_at_a_time_does_not_hold_the_caller(server: Server) -> None:
    server.answers["/slow"] = (200, "text/plain", b"x" * 1000)
    server.drip_seconds = 0.02
    # The whole body would come in 20 s; where the server stops between two bytes, that ends it too.
    with pytest.raises(Unreadable, match=r"did not end in time|timed out"):
        fetching.get(f"{server.url}/slow", timeout_s=0.2)


def test_a_body_without_end_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "BODY_LIMIT_BYTES", 1000)
    server.answers["/big"] = (200, "text/plain", b"x" * 100_000)
    with pytest.raises(Unreadable, match="more than"):
        fetching.get(f"{server.url}/big")


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # ours, so that nobody else listens there meanwhile
        with pytest.raises(Unreadable, match="Connection refused"):
            fetching.get(f"http://127.0.0.1:{port}/")


def test_a_token_does_not_leave_the_machine_in_the_clear(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("secret")
    with pytest.raises(Unreadable, match="not sent in the clear"):
        fetching.get("http://192.0.2.1/", trust=fetching.Trust(token_file=tmp_path / "token"), timeout_s=0.1)


@pytest.mark.parametrize("url", ["", "ftp://x/", "http://", "localhost:9090", "http://x:99999/", "http://x/ y"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadSource, match="write an address"):
        fetching.check_url(url)
