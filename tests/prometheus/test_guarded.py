"""A Prometheus that asks who we are, is somewhere else, or cannot do what it is asked for: each is told."""

import pathlib
import time
from collections.abc import Iterator

import pytest
import yaml
from tests.prometheus import servers
from tests.prometheus.servers import Prometheus

from cotenant.latency.errors import Refused, TooLarge, Unreadable
from cotenant.latency.fetching import Trust
from cotenant.latency.prometheus import Server
from cotenant.manager.webhook import certificates

pytestmark = pytest.mark.real

PASSWORD = "pressure"
BCRYPT = "$2b$04$Gi42mEI72eNmdfNpLqtofOicaXFRIBhKnOojxC15YqSU4rNrLs5Zy"
"""Of the password, as a web configuration of Prometheus holds it."""
NO_JOBS: dict[str, list[str]] = {"scrape_configs": []}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, pathlib.Path]]:
    """A server with TLS by an authority of its own and basic authentication, and the folder of the files."""
    folder = tmp_path_factory.mktemp("guarded")
    made = certificates.renewed(None, ("127.0.0.1",), time.time(), 86400, published=True)
    assert made is not None
    for name, content in (("ca.crt", made.authorities), ("tls.crt", made.certificate), ("tls.key", made.key)):
        (folder / name).write_bytes(content)
    web = {
        "tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"},
        "basic_auth_users": {"reader": BCRYPT},
    }
    (folder / "web.yml").write_text(yaml.safe_dump(web))
    (folder / "user").write_text(f"reader:{PASSWORD}\n")
    (folder / "wrong").write_text("reader:wrong\n")
    (folder / "token").write_text("token\n")
    found = Prometheus(folder / "data", NO_JOBS, f"--web.config.file={folder}/web.yml", scheme="https")
    yield found, folder
    found.stop()


def test_with_its_authority_and_a_password_it_answers(guarded: tuple[Prometheus, pathlib.Path]) -> None:
    prometheus, folder = guarded
    trust = Trust(ca_file=folder / "ca.crt", basic_auth_file=folder / "user")
    (found,) = Server(prometheus.url, trust).instant("vector(1)")
    assert found.value == 1.0


@pytest.mark.parametrize(
    ("ca", "token", "user", "said"),
    [
        ("", "", "user", "certificate is not believed, .*; caFile names"),
        ("ca.crt", "", "", "401 Unauthorized .*; it asks who you are: tokenFile, or basicAuthFile"),
        ("ca.crt", "", "wrong", "401 Unauthorized"),
        ("ca.crt", "token", "", "401 Unauthorized"),
        ("ca.crt", "", "nothing", "nothing: No such file"),
        ("nothing", "", "user", "nothing: No such file"),
        ("user", "", "user", "user: .*no certificate"),
    ],
)
def test_without_one_of_them_it_says_which(
    guarded: tuple[Prometheus, pathlib.Path], ca: str, token: str, user: str, said: str
) -> None:
    prometheus, folder = guarded
    trust = Trust(*(folder / name if name else None for name in (ca, token, user)))
    with pytest.raises(Unreadable, match=f"(?i){said}") as raised:
        Server(prometheus.url, trust).instant("vector(1)")
    assert PASSWORD not in str(raised.value)


def test_recommend_has_the_same_options(guarded: tuple[Prometheus, pathlib.Path]) -> None:
    prometheus, folder = guarded
    words = ["recommend", "--from=prometheus", f"--url={prometheus.url}", f"--ca-file={folder}/ca.crt"]
    done = servers.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "401 Unauthorized" in done.stderr
    done = servers.run(*words, f"--basic-auth-file={folder}/user")
    assert done.returncode == 1
    assert "has no signals of cotenant of the last 24 h: does it scrape nodes?" in done.stderr


def test_an_address_that_is_moved_is_named(tmp_path: pathlib.Path) -> None:
    prometheus = Prometheus(tmp_path, NO_JOBS, "--web.external-url=http://127.0.0.1/prom", path="/prom")
    try:
        assert Server(f"{prometheus.url}/").instant("vector(1)")[0].value == 1
        moved = f"http://127.0.0.1:{prometheus.port}"
        with pytest.raises(Refused, match="/api/v1/query: 404 Not Found"):
            Server(moved).instant("vector(1)")
    finally:
        prometheus.stop()


def test_what_is_more_than_it_allows_is_too_large(tmp_path: pathlib.Path) -> None:
    prometheus = Prometheus(tmp_path, NO_JOBS, "--query.max-samples=50")
    try:
        with pytest.raises(TooLarge, match=r"422 .*too many samples"):
            Server(prometheus.url).range("vector(1)", 0, 1000, 1)
        with pytest.raises(Refused, match=r"400 .*maximum resolution of 11,000 points"):
            Server(prometheus.url).range("vector(1)", 0, 1e6, 1)
    finally:
        prometheus.stop()


def test_a_query_that_takes_too_long_ends_there_too(tmp_path: pathlib.Path) -> None:
    """The server is told our own deadline: it is its own refusal that is seen, not a connection that is cut."""
    prometheus = Prometheus(tmp_path, NO_JOBS, "--query.timeout=1ms")
    try:
        slow = "count_over_time(vector(1)[1d:1s])"
        with pytest.raises(Refused, match="503 Service Unavailable query timed out"):
            Server(prometheus.url, timeout_seconds=60).instant(f"{slow} + {slow}")
    finally:
        prometheus.stop()
