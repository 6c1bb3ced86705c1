"""Keys are brought in step: within the budget, again after failures, and not twice for one change."""

import pytest

from cotenant.kube import errors
from cotenant.kube.budget import Budget
from cotenant.manager.reconciling import ECHO_SECONDS, Reconciler, Write
from cotenant.units.clock import ManualClock


class World:
    """Numbers that should be others; a write of a key makes it so, or fails with the next of ``failures``."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.clock = ManualClock()
        self.found: dict[str, int] = {}
        self.wanted: dict[str, int] = {}
        self.failures: list[errors.KubeError] = []
        self.written: list[str] = []
        self.reconciler = Reconciler("numbers", self.due, self.clock, budget)

    def due(self, key: str) -> Write | None:
        async def write() -> None:
            if self.failures:
                raise self.failures.pop(0)
            self.written.append(key)

        return write if self.found.get(key) != self.wanted.get(key) else None

    def want(self, **numbers: int) -> None:
        self.wanted |= numbers
        self.reconciler.touch_all(numbers)

    def echo(self) -> None:
        """Let the watch tell of everything that was written."""
        for key in self.written:
            self.found[key] = self.wanted[key]
            self.reconciler.seen(key)


async def test_what_is_as_it_should_be_is_not_written() -> None:
    world = World()
    world.found["a"] = 1
    world.want(a=1)
    await world.reconciler.step()
    assert (world.written, world.reconciler.waiting) == ([], 0)


async def test_a_write_is_not_repeated_while_its_echo_is_under_way() -> None:
    world = World()
    world.want(a=1)
    await world.reconciler.step()
    world.reconciler.touch("a")
    await world.reconciler.step()
    assert world.written == ["a"]
    world.echo()
    await world.reconciler.step()
    assert (world.written, world.reconciler.waiting) == (["a"], 0)


async def test_a_write_whose_echo_never_comes_is_looked_at_again() -> None:
    world = World()
    world.want(a=1)
    await world.reconciler.step()
    world.clock.advance(ECHO_SECONDS + 0.1)
    await world.reconciler.step()
    assert world.written == ["a", "a"]


async def test_the_budget_bounds_what_is_written_and_nothing_is_forgotten() -> None:
    clock = ManualClock()
    world = World()
    world.clock = clock
    world.reconciler = Reconciler("numbers", world.due, clock, Budget(clock, 10.0, 5.0))
    world.want(**{f"n{index}": index for index in range(40)})
    for _ in range(20):
        await world.reconciler.step()
        world.echo()
        clock.advance(0.2)
    assert sorted(world.written) == sorted(f"n{index}" for index in range(40))
    assert world.reconciler.counts.writes == 40


@pytest.mark.parametrize(
    "error",
    [errors.Conflict("x", 409, "Conflict"), errors.Forbidden("x", 403, "Forbidden"), errors.ApiError("x", 500, "")],
)
async def test_a_failed_key_waits_and_the_others_go_on(error: errors.KubeError) -> None:
    world = World()
    world.failures = [error]
    world.want(a=1)
    await world.reconciler.step()
    world.want(b=2)
    await world.reconciler.step()
    assert world.written == ["b"]
    world.clock.advance(1.0)
    await world.reconciler.step()
    assert world.written == ["b", "a"]
    is_conflict = isinstance(error, errors.Conflict)
    assert (world.reconciler.counts.conflicts, world.reconciler.counts.failures) == (is_conflict, not is_conflict)


async def test_a_server_that_asks_for_time_gets_it() -> None:
    world = World()
    world.failures = [errors.Throttled("slow down", 429, "TooManyRequests", 7.0)]
    world.want(a=1)
    await world.reconciler.step()
    world.want(b=2)
    world.clock.advance(6.9)
    await world.reconciler.step()
    assert world.written == []
    world.clock.advance(0.2)
    await world.reconciler.step()
    assert sorted(world.written) == ["a", "b"]
