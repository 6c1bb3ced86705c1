"""``/metrics`` and ``/healthz`` from a thread of their own, for programs that serve nothing else over HTTP."""

import http.server
import socket
import threading
from collections.abc import Callable, Sequence

import prometheus_client
from prometheus_client import registry

from cotenant.units import address

TIMEOUT_SECONDS = 10
LOOK_SECONDS = 0.5
"""How often the server looks whether it is to end."""


def serve(
    collectors: Sequence[registry.Collector],
    listen: str,
    option: str,
    unhealthy: Callable[[], str | None] = lambda: None,
) -> http.server.ThreadingHTTPServer:
    """Serve what collectors know, and what the process uses, until the server returned is shut down.

    ``unhealthy`` says why ``/healthz`` is to answer 503; None: 200. ``option`` is where the address was given.

    :raises BadAddress: if the address is malformed or cannot be listened on.
    """
    host, port = address.split(listen, option)
    own = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=own)
    for collector in collectors:
        own.register(collector)

    class Handler(prometheus_client.MetricsHandler):
        registry = own
        timeout = TIMEOUT_SECONDS

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/healthz":
                super().do_GET()
                return
            reason = unhealthy()
            self.send_response(http.HTTPStatus.OK if reason is None else http.HTTPStatus.SERVICE_UNAVAILABLE)
            self.end_headers()
            self.wfile.write(f"{reason or 'ok'}\n".encode())

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        raise address.BadAddress(f"{option} {listen}: {error.strerror}; choose another address or port") from None
    threading.Thread(target=server.serve_forever, args=(LOOK_SECONDS,), name="metrics", daemon=True).start()
    return server
