import socket

import pytest

from cotenant.units import address
from cotenant.web import serving


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(address.BadAddress, match=f"{port}: Address already in use; choose another"):
            serving.bind(f"127.0.0.1:{port}")


def test_the_url_of_what_was_bound() -> None:
    with serving.bind("127.0.0.1:0") as listener:
        assert serving.url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
