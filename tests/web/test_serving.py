import socket

import pytest

from cotenant.web import serving


@pytest.mark.parametrize(
    ("listen", "found"), [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:8088", ("::1", 8088)), ("node:0", ("node", 0))]
)
def test_an_address_is_a_host_and_a_port(listen: str, found: tuple[str, int]) -> None:
    assert serving.split_address(listen) == found


@pytest.mark.parametrize("listen", ["", "8088", ":8088", "node:", "node:http", "node:65536"])
def test_anything_else_is_refused_with_the_option_it_was_given_by(listen: str) -> None:
    with pytest.raises(serving.BadListen, match=r"--page .*not HOST:PORT"):
        serving.split_address(listen, "--page")


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(serving.BadListen, match=f"{port}: Address already in use; choose another"):
            serving.bind(f"127.0.0.1:{port}")


def test_the_url_of_what_was_bound() -> None:
    with serving.bind("127.0.0.1:0") as listener:
        assert serving.url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
