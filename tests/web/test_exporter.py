"""Metrics and health from a thread."""

import socket
from collections.abc import Iterator

import prometheus_client
import pytest
from tests import asking

from cotenant.units import address
from cotenant.web import exporter


class Exporter:
    """One that counts to 7, and is as healthy as it is told to be."""

    def __init__(self, host: str) -> None:
        registry = prometheus_client.CollectorRegistry()
        prometheus_client.Gauge("seven", "Seven.", registry=registry).set(7)
        self.reason: str | None = None
        self.server = exporter.serve([registry], address.join(host, 0), "--metrics", lambda: self.reason)

    def get(self, path: str) -> tuple[int, str]:
        host, port = self.server.server_address[:2]
        return asking.get(str(host), int(port), path)


@pytest.fixture(params=["127.0.0.1", "::1"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporter]:
    monkeypatch.setattr(exporter, "LOOK_SECONDS", 0.01)
    found = Exporter(request.param)
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_metrics_are_the_collectors_and_the_process_s(served: Exporter) -> None:
    status, text = served.get("/metrics")
    assert status == 200
    assert "seven 7.0\n" in text
    assert "process_resident_memory_bytes" in text


def test_health_says_why_not(served: Exporter) -> None:
    assert served.get("/healthz") == (200, "ok\n")
    served.reason = "nothing moves"
    assert served.get("/healthz?full=1") == (503, "nothing moves\n")
    assert served.get("/metrics")[0] == 200


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", "256.0.0.1:1"])
def test_an_address_that_cannot_be_listened_on_is_named(listen: str) -> None:
    with pytest.raises(address.BadAddress, match=f"--metrics {listen}"):
        exporter.serve([], listen, "--metrics")


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(address.BadAddress, match=f"{port}: Address already in use; choose another"):
            exporter.serve([], f"127.0.0.1:{port}", "--metrics")
