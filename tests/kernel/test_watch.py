import threading

import pytest
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.kernel import watch as watching
from cotenant.kernel.reading import Reading
from cotenant.kernel.watch import Slot, Watch


class Prompt:
    """A reader that answers at once, and remembers what it was asked."""

    def __init__(self, group):
        self.group, self.asked, self.closed = group, [], False

    def read(self, seconds):
        self.asked.append(seconds)
        return Reading({self.group: len(self.asked)}, {})

    def close(self):
        self.closed = True


class Hanging(Prompt):
    """A reader that answers when it is let go."""

    def __init__(self, group):
        super().__init__(group)
        self.go, self.done, self.hangs = threading.Event(), threading.Event(), threading.Event()

    def read(self, seconds):
        if not self.go.is_set():
            self.hangs.set()
        self.go.wait(PATIENCE_SECONDS)
        result = super().read(seconds)
        self.done.set()
        return result


def late_when_it_hangs(hung):
    """Return a round whose deadline has passed when this reader hangs in it, and not before: no clock decides."""

    class Over(threading.Event):
        def wait(self, timeout=None):
            await_true(lambda: self.is_set() or hung.hangs.is_set(), "the round is over or hangs", pause_seconds=0.001)
            hung.hangs.clear()
            return self.is_set()

    class Round(watching._Round):
        def __init__(self, slots, seconds):
            super().__init__(slots, seconds)
            self.over = Over()

    return Round


def merged(readings):
    groups, missing = {}, {}
    for reading in readings:
        groups.update(reading.groups)
        missing.update(reading.missing)
    return groups, missing


def test_a_hung_read_costs_its_own_groups_only(monkeypatch):
    first, hung, last = Prompt("psi"), Hanging("block"), Prompt("net")
    monkeypatch.setattr(watching, "_Round", late_when_it_hangs(hung))
    watch = Watch([Slot(("psi",), first), Slot(("block",), hung), Slot(("net",), last)], deadline_s=0.5)
    assert merged(watch.read(1.0)) == ({"psi": 1}, {"block": "stale", "net": "stale"})
    assert merged(watch.read(1.0)) == ({"psi": 2, "net": 1}, {"block": "stale"})
    hung.go.set()
    assert hung.done.wait(PATIENCE_SECONDS)
    while merged(watch.read(1.0))[1]:
        pass  # the left thread is on its way out
    watch.read(1.0)
    assert hung.asked == [1.0, "stale", 1.0]  # what it knew was too old for a rate
    assert last.asked[:2] == ["stale", 1.0]
    watch.close()
    assert first.closed
    assert hung.closed


def test_without_a_deadline_all_is_read_here():
    watch = Watch([Slot(("psi",), Prompt("psi"))], None)
    assert merged(watch.read(1.0)) == ({"psi": 1}, {})


@pytest.mark.parametrize("deadline_s", [None, PATIENCE_SECONDS])
def test_a_reader_that_fails_is_not_silence(deadline_s):
    class Broken(Prompt):
        def read(self, seconds):
            raise ZeroDivisionError

    watch = Watch([Slot(("psi",), Broken("psi"))], deadline_s)
    with pytest.raises(ZeroDivisionError):
        watch.read(1.0)
    watch.close()
