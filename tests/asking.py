"""Asking a server that a test has started."""

import http.client


def get(host: str, port: int, path: str) -> tuple[int, str]:
    """Return the status and the text that a path answers with, over a connection of its own."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
