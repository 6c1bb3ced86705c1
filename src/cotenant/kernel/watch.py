"""Reads with a deadline: a read that hangs in the kernel costs its own groups, not the sample."""

import dataclasses
import queue
import threading
from collections.abc import Sequence

from cotenant.kernel import ticking
from cotenant.kernel.reading import Reader, Reading
from cotenant.model.sample import MissingReason


@dataclasses.dataclass(slots=True)
class Slot:
    """One reader, the groups of the sample that it makes, and where it is."""

    groups: tuple[str, ...]
    reader: Reader
    busy: bool = False
    """A read of an earlier round has not come back yet."""
    late: bool = False
    """It was not read for the last sample, or came back after it: no rate is to be made of what it counted."""


class _Round:
    """One pass over the readers."""

    def __init__(self, slots: Sequence[Slot], seconds: float | MissingReason) -> None:
        self.slots = slots
        self.seconds = seconds
        self.readings: list[Reading] = []
        self.abandoned = False
        self.error: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Read all, until the round is abandoned."""
        try:
            for slot in self.slots:
                if self.abandoned:
                    return
                slot.busy = True
                reading = slot.reader.read("stale" if slot.late else self.seconds)
                slot.late = self.abandoned
                slot.busy = False
                if not self.abandoned:
                    self.readings.append(reading)
        except BaseException as error:  # noqa: BLE001 - not swallowed: whoever waits for the round raises it
            self.error = error
        finally:
            self.over.set()


class Watch:
    """Some readers, read in their order by a thread that is left behind when it hangs.

    ``deadline_s`` None reads in the caller's own thread.
    """

    def __init__(self, slots: Sequence[Slot], deadline_s: float | None) -> None:
        self._slots = tuple(slots)
        self._deadline_s = deadline_s
        self._rounds: queue.SimpleQueue[_Round | None] | None = None

    def read(self, seconds: float | MissingReason) -> list[Reading]:
        """Return a reading of every slot; ``stale`` for those that have not come back.

        Whatever a reader raises is raised here: no reader should, so it is a defect of ours.
        """
        turn = _Round([slot for slot in self._slots if not slot.busy], seconds)
        if self._deadline_s is None:
            turn.run()
        else:
            self._wait_for(turn, self._deadline_s)
        if turn.error is not None:
            raise turn.error
        readings = list(turn.readings)
        silent = [slot for slot in self._slots if slot not in turn.slots[: len(readings)]]
        return [*readings, *(Reading({}, dict.fromkeys(slot.groups, "stale")) for slot in silent)]

    def _wait_for(self, turn: _Round, deadline_s: float) -> None:
        self._worker().put(turn)
        if not turn.over.wait(deadline_s):
            turn.abandoned = True
            self._rounds = None  # the next round gets a thread of its own
            for slot in turn.slots[len(turn.readings) :]:
                slot.late = True

    def _worker(self) -> "queue.SimpleQueue[_Round | None]":
        if self._rounds is None:
            self._rounds = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._rounds,), name="cotenant-readers", daemon=True).start()
        return self._rounds

    def close(self) -> None:
        """End the thread, and release the descriptors of those readers that are not in the middle of a read."""
        if self._rounds is not None:
            self._rounds.put(None)
        for slot in self._slots:
            if not slot.busy:
                slot.reader.close()


def _work(rounds: "queue.SimpleQueue[_Round | None]") -> None:
    ticking.go_first()
    while (turn := rounds.get()) is not None:
        turn.run()
        if turn.abandoned:
            return
