import socket
import threading

import pytest
from tests.web.connecting import without_delay

from cotenant.units import address
from cotenant.web import serving


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(address.BadAddress, match=f"{port}: Address already in use; choose another"):
            serving.bind(f"127.0.0.1:{port}")


def test_a_port_that_somebody_is_about_to_leave_is_waited_for() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    leaving = threading.Timer(0.1, taken.close)
    leaving.start()
    with serving.bind(f"127.0.0.1:{port}", patience_seconds=60) as listener:
        assert listener.getsockname()[1] == port
    leaving.join()


def test_the_url_of_what_was_bound() -> None:
    with serving.bind("127.0.0.1:0") as listener:
        assert serving.url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head() -> None:
    with serving.bind("127.0.0.1:0") as listener:
        assert await without_delay(listener)
