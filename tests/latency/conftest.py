"""A real HTTP server on loopback that answers as a test says."""

import collections
import http.server
import threading
import time
from collections.abc import Iterator

import pytest


class Server:
    """Answers GET by path (the query string left out); ``seen`` keeps paths and headers."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str, bytes]] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.drip_seconds = 0.0
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.seen.append((self.path, dict(self.headers)))
                missing = (404, "text/plain", b"nothing here")
                status, kind, body = owner.answers.get(self.path.partition("?")[0], missing)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                for name, value in owner.headers.get(self.path.partition("?")[0], {}).items():
                    self.send_header(name, value)
                self.end_headers()
                pieces = [body[n : n + 1] for n in range(len(body))] if owner.drip_seconds else [body]
                for piece in pieces:
                    try:
                        self.wfile.write(piece)
                    except OSError:
                        return
                    if owner.drip_seconds:
                        time.sleep(owner.drip_seconds)

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def counts(self) -> collections.Counter[str]:
        return collections.Counter(path.partition("?")[0] for path, _ in self.seen)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()
