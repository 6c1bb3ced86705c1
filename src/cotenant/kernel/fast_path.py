"""Tightening within 200 ms: what the loop has got ready is written as soon as online work waits for a CPU.

Where the kernel takes a trigger for every online group, nothing is read until one of them stalls; then, and all the
time where it does not, the stall of every group is read each tenth of a second (the kernel adds it up at each read; its
own averages lag by seconds). A poll costs two reads a group. A group that its own quota throttles does not count.
"""

import logging
import pathlib
import threading
from collections.abc import Sequence

from cotenant.kernel import enforcing, errors, paths, psi, stall_trigger, ticking
from cotenant.kernel.file import File
from cotenant.units.clock import Clock
from cotenant.units.plan import PlanItem

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.1
STALL_RATIO = 0.3
"""Of the time between two reads: an online task was ready and had no CPU."""
ALERT_INTERVAL_SECONDS = 0.05
"""Between the first two reads after a trigger: the kernel took its time already."""
ALERT_SECONDS = 3.0
"""How long groups are read after the last trigger: what the loop has got ready may come later."""
CALM_WAIT_SECONDS = 1.0
LATE_SECONDS = 1.0
"""After a longer break two reads say nothing about now."""


class Stall:
    """The CPU stall of one group from one read to the next."""

    def __init__(self, root: paths.Root, path: str) -> None:
        v2 = next((mount.path for mount in root.cgroup_mounts() if mount.version == 2), None)
        cpu, cpuacct = root.hierarchy("cpu"), root.hierarchy("cpuacct")
        places = [*([v2] if v2 else []), *([cpuacct.path] if cpuacct else [])]
        found = next((place for place in places if (place / path / "cpu.pressure").exists()), None)
        self._pressure = None if found is None else File(found / path / "cpu.pressure")
        self._stat = None if cpu is None else File(cpu.path / path / "cpu.stat")
        self._before: tuple[float, int, int] | None = None

    @property
    def pressure(self) -> pathlib.Path | None:
        """The file that is read; None where the group has none, and says nothing."""
        return None if self._pressure is None else pathlib.Path(self._pressure.path)

    def ratio(self, now: float) -> float | None:
        """Return the share of the time since the last read in which some task waited for a CPU.

        None at the first read, after a long break, when it cannot be read, and while its own quota throttles the group.
        """
        before, self._before = self._before, self._read(now)
        if before is None or self._before is None:
            return None
        seconds, stalled = now - before[0], self._before[1] - before[1]
        if not 0 < seconds <= LATE_SECONDS or self._before[2] != before[2]:
            return None
        return max(stalled / 1e6 / seconds, 0.0)

    def _read(self, now: float) -> tuple[float, int, int] | None:
        if self._pressure is None:
            return None
        try:
            some, _ = psi.parse(self._pressure.read(), self._pressure.path)
            return None if some is None else (now, some, self._throttled())
        except errors.KernelError:
            return None  # gone, or no PSI: this group says nothing

    def _throttled(self) -> int:
        try:
            text = b"" if self._stat is None else self._stat.read()
        except errors.KernelError:
            return 0
        words = text.split()
        at = words.index(b"nr_throttled") if b"nr_throttled" in words else -2
        return int(words[at + 1]) if 0 <= at < len(words) - 1 and words[at + 1].isdigit() else 0

    def close(self) -> None:
        for file in (self._pressure, self._stat):
            if file is not None:
                file.close()


class FastPath:
    """Polls in a thread of its own; the loop says after each round whom to watch and what to write."""

    def __init__(self, root: paths.Root, enforcer: enforcing.Enforcer, clock: Clock) -> None:
        self._root = root
        self._enforcer = enforcer
        self._clock = clock
        self._lock = threading.Lock()
        self._stalls: dict[str, Stall] = {}
        self._ready: tuple[PlanItem, ...] = ()
        self._aimed = threading.Event()
        """Set while there is something to write, and to end: without, nothing is read and nobody wakes up."""
        self._triggers: stall_trigger.Triggers | None = None
        self._by_trigger = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._polling, name="fast-path", daemon=True)
        self._failed = False
        self._alert_until_s = float("-inf")
        self._tightened_s: float | None = None
        self.total = 0
        """Tightenings since the start."""

    def aim(self, online: Sequence[str], ready: Sequence[PlanItem]) -> None:
        """Watch these groups, and write these items once when one of them suffers."""
        with self._lock:
            for path in self._stalls.keys() - set(online):
                gone = self._stalls.pop(path)
                if gone.pressure is not None and self._triggers is not None:
                    self._triggers.forget(gone.pressure)
                gone.close()
            for path in online:
                if path not in self._stalls:
                    self._stalls[path] = Stall(self._root, path)
            self._ready = tuple(ready)
            if ready:
                self._aimed.set()
            elif not self._stopped.is_set():
                self._aimed.clear()
            self._by_trigger = self._triggers is not None and self._watch(self._triggers)

    def _watch(self, triggers: stall_trigger.Triggers) -> bool:
        """Return whether every group that says anything has a trigger."""
        places = [stall.pressure for stall in self._stalls.values() if stall.pressure is not None]
        taken = [triggers.watch(place) for place in places]
        return bool(taken) and all(taken)

    def ago_seconds(self) -> float | None:
        """Return how long ago it tightened, or None if it never did."""
        return None if self._tightened_s is None else self._clock.monotonic() - self._tightened_s

    def poll(self) -> bool:
        """Read once; return whether quotas were tightened."""
        with self._lock:
            if not self._ready:
                return False
            now = self._clock.monotonic()
            ratios = {path: stall.ratio(now) for path, stall in self._stalls.items()}
            worst = max(ratios, key=lambda path: ratios[path] or 0.0, default=None)
            ratio = None if worst is None else ratios[worst]
            if ratio is None or ratio < STALL_RATIO:
                return False
            items, self._ready = self._ready, ()
            self._tightened_s = now
        log.info("%s waited for a CPU %.0f %% of a tenth of a second: tightened", worst, ratio * 100)
        written = sum(outcome.state == "written" for outcome in self._enforcer.write(items))
        self.total += bool(written)
        return bool(written)

    def start(self) -> None:
        if self._root.is_machine:
            self._triggers = stall_trigger.Triggers()
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        self._stopped.set()
        self._aimed.set()
        if self._triggers is not None:
            self._triggers.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._triggers is not None and not self._thread.is_alive():
            with self._lock:
                self._by_trigger = False
                self._triggers.close()
                self._triggers = None

    def _polling(self) -> None:
        ticking.go_first()  # it must run while every CPU is wanted: that is when it is needed
        while not self._stopped.is_set():
            self._aimed.wait()
            try:
                if self._await_stall():
                    self.poll()
            except Exception as error:
                if not self._failed:
                    log.error("fast path failed: %s: %s", type(error).__name__, error, exc_info=error)
                self._failed = True
                self._stopped.wait(INTERVAL_SECONDS)

    def _await_stall(self) -> bool:
        """Wait for a trigger, or for the next tenth of a second; return whether groups are to be read."""
        triggers = self._triggers
        if triggers is None or not self._by_trigger or self._clock.monotonic() < self._alert_until_s:
            self._stopped.wait(INTERVAL_SECONDS)
            return True
        if not triggers.wait(CALM_WAIT_SECONDS):
            return False
        self._alert_until_s = self._clock.monotonic() + ALERT_SECONDS
        self.poll()  # what the next reading is compared with
        self._stopped.wait(ALERT_INTERVAL_SECONDS)
        return True
