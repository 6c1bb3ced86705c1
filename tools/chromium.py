"""A headless Chromium driven over its debugging protocol: open, evaluate, take pictures. For tests and screenshots."""

import base64
import contextlib
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, Literal

import websocket

TIMEOUT_SECONDS = 180.0
"""For the start, each call and each wait: a machine that stands still for a minute is no failure."""

Scheme = Literal["light", "dark"]


class ChromiumMissing(Exception):
    """There is no Chromium on this machine."""


class PageFailed(Exception):
    """The page's script threw, or a wait was in vain."""


class Tab:
    """One page of a running browser."""

    def __init__(self, socket_url: str) -> None:
        self._socket = websocket.create_connection(socket_url, timeout=TIMEOUT_SECONDS, suppress_origin=True)
        self._next = 0
        self.errors: list[str] = []
        """What the page's console and the network layer complained of."""
        self.requests: list[str] = []
        """Every address that the page asked for."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to one protocol call; events that come meanwhile are noted."""
        self._next += 1
        self._socket.send(json.dumps({"id": self._next, "method": method, "params": parameters}))
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:  # a page with live events never falls silent
            message = json.loads(self._socket.recv())
            if message.get("id") == self._next:
                if "error" in message:
                    raise PageFailed(f"{method}: {message['error']['message']}")
                return dict(message["result"])
            self._note(message)
        raise PageFailed(f"{method}: no answer within {TIMEOUT_SECONDS:.0f} s")

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            entry = parameters["entry"]
            self.errors.append(f"{entry['text']} {entry.get('url', '')}".strip())
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def size(self, width: int, height: int) -> None:
        """Set the size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def scheme(self, scheme: Scheme) -> None:
        """Prefer light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Load an address and wait until its first paint could be done."""
        self.evaluate("window.isLeft = true")  # the document before may be there for a moment after the answer
        self.call("Page.navigate", url=url)
        self.wait("!window.isLeft && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """Return the JSON value of an expression; promises are awaited.

        :raises PageFailed: if it throws.
        """
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise PageFailed(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, expression: str, timeout_s: float = TIMEOUT_SECONDS) -> Any:
        """Return the value of an expression as soon as it is true.

        :raises PageFailed: if it is not within the time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(PageFailed):  # The page may be between two documents.
                value = self.evaluate(expression)
                if value:
                    return value
            time.sleep(0.1)
        shown = self.evaluate("document.body.innerText.slice(0, 2000)")
        raise PageFailed(f"not true within {timeout_s:.0f} s: {expression}; errors: {self.errors}; the page:\n{shown}")

    def press(self, key: str) -> None:
        """Press and release one key, such as Tab or Enter."""
        text = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if kind == "keyDown" else "",
                      windowsVirtualKeyCode={"Tab": 9, "Enter": 13}.get(key, 0))  # fmt: skip

    def picture(self, path: pathlib.Path, *, whole: bool = False) -> None:
        """Write a PNG of the window, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """Leave the page."""
        self._socket.close()


@contextlib.contextmanager
def running() -> Iterator[Tab]:
    """Yield a page of a new browser with an empty profile; the browser and the profile are gone afterwards.

    :raises ChromiumMissing: if there is none.
    """
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    if binary is None:
        raise ChromiumMissing("chromium is not installed (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="cotenant-chromium-", ignore_cleanup_errors=True) as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        flags += [
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            [binary, *flags, "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            tab = Tab(_socket_url(pathlib.Path(profile), process))
            try:
                yield tab
            finally:
                tab.close()
        finally:
            process.terminate()
            try:
                process.wait(TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _socket_url(profile: pathlib.Path, process: subprocess.Popen[bytes]) -> str:
    """Return where the browser's first page listens, once it does."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    port_file = profile / "DevToolsActivePort"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PageFailed(f"chromium ended with status {process.returncode}")
        with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
            port = int(port_file.read_text().split()[0])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=TIMEOUT_SECONDS) as answer:
                targets = json.load(answer)
            return str(next(target for target in targets if target["type"] == "page")["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise PageFailed("chromium did not start")
