"""``cotenant up``: everything put together, started, and stopped by SIGINT or SIGTERM."""

import asyncio
import dataclasses
import logging
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from cotenant.kernel.ticking import SamplingThread
from cotenant.local import listening
from cotenant.local.cost import CostMeter
from cotenant.local.enforcement import Enforcement
from cotenant.local.history import History
from cotenant.local.host import Host, Judge, SampleSource
from cotenant.units.clock import Clock, SystemClock

if TYPE_CHECKING:
    from cotenant.latency.configuration import Service
    from cotenant.latency.watching import Watch

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How to run. ``data`` holds history and token. ``web`` False: no page, no API, no metrics."""

    data: pathlib.Path
    port: int = 7070
    listen: str = "127.0.0.1"
    period_s: float = 1.0
    web: bool = True
    token_file: pathlib.Path | None = None
    enforcement: Enforcement | None = None
    """The loop that acts; None: watch only."""
    services: "tuple[Service, ...]" = ()
    """Online services whose latency is read."""


class Program:
    """One run. ``say`` prints a line for the person who started it."""

    def __init__(
        self,
        settings: Settings,
        source: SampleSource,
        judge: Judge,
        status: pathlib.Path,
        say: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._say = say
        clock = clock or SystemClock()
        if settings.web:
            listening.check(settings.listen, settings.token_file)
        self._data = settings.data
        self._socket: socket.socket | None = None
        if settings.web:
            self._socket = listening.bind(settings.listen, settings.port)
        self._claim = listening.claim(self._data)
        if settings.web:
            self._token = listening.token_of(self._data, settings.token_file)
        self._history = History(self._data, clock)
        self._watch = _watch(settings.services, clock)
        self._host = Host(source, judge, self._history, CostMeter(status), clock, settings.enforcement, self._watch)
        self._sampling = SamplingThread(self._host.tick, self._host.late, settings.period_s, clock)

    def run(self) -> None:
        """Run until told to stop."""
        self._history.start()
        self._host.start()
        if self._watch is not None:
            self._watch.start()
        enforcement = self._settings.enforcement
        if enforcement is not None:
            kept = self._history.recall_ledger()
            if kept is not None:
                enforcement.books.adopt(kept)
            self._host.listen(enforcement.offer)
            enforcement.start()
        try:
            if self._socket is None:
                self._run_without_web()
            else:
                asyncio.run(self._run_with_web(self._socket))
        finally:
            if self._watch is not None:
                self._watch.stop()
            self._sampling.stop()
            if enforcement is not None:
                enforcement.stop()
            self._history.stop()
            os.close(self._claim)

    def _run_without_web(self) -> None:
        stopped = threading.Event()
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: stopped.set())
        self._sampling.start()
        self._say(f"cotenant: watching this machine, without a page; history in {self._data}; ctrl-C ends it")
        stopped.wait()

    async def _run_with_web(self, bound: socket.socket) -> None:
        # Imported here: without the page, none of it is loaded.
        from cotenant.web.application import Site
        from cotenant.web.guard import AllowedHosts, Keys
        from cotenant.web.server import WebServer

        names = (
            frozenset({socket.gethostname().lower()})
            if not listening.is_loopback(self._settings.listen)
            else frozenset()
        )
        port = bound.getsockname()[1]
        keys = Keys(self._token, f"cotenant_{port}")
        site = Site(self._host, AllowedHosts(self._settings.listen, names), keys, self._settings.period_s)
        server = WebServer(site, bound)
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, server.stop)
        self._host.listen(server.publish)
        self._sampling.start()
        address = listening.url(bound)
        await server.serve(lambda: self._say(f"cotenant: {address} shows this machine live; ctrl-C ends it"))


def _watch(services: "tuple[Service, ...]", clock: Clock) -> "Watch | None":
    """Return what reads the services' latency; without any, none of it is loaded."""
    if not services:
        return None
    from cotenant.latency.watching import Watch

    return Watch(services, clock)
