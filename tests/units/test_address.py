import pytest

from cotenant.units import address


@pytest.mark.parametrize(
    ("text", "found"), [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:8088", ("::1", 8088)), ("node:0", ("node", 0))]
)
def test_an_address_is_a_host_and_a_port(text: str, found: tuple[str, int]) -> None:
    assert address.split(text) == found
    assert address.join(*found) == text


@pytest.mark.parametrize("text", ["", "8088", ":8088", "node:", "node:http", "node:65536", "node:-1", "node:²"])
def test_anything_else_is_refused_with_the_option_it_was_given_by(text: str) -> None:
    with pytest.raises(address.BadAddress, match=r"--page .*not HOST:PORT"):
        address.split(text, "--page")


@pytest.mark.parametrize(
    ("host", "alone"),
    [("localhost", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("node", False)],
)
def test_loopback_is_this_machine_alone(host: str, alone: bool) -> None:
    assert address.is_loopback(host) is alone


@pytest.mark.parametrize("url", ["https://a", "https://a:1/b?c#d", "https://[::1]:8443"])
def test_a_url_has_parts(url: str) -> None:
    parts = address.parts_of_url(url, "https")
    assert parts is not None
    assert parts.geturl() == url


@pytest.mark.parametrize(
    "url", ["", "a:1", "http://a", "https://", "https://a:0", "https://a:65536", "https://[a", "https://a b"]
)
def test_what_is_no_url_of_a_scheme_has_none(url: str) -> None:
    assert address.parts_of_url(url, "https") is None
