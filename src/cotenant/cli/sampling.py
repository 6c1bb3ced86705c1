"""What ``sample`` and ``record`` share: their options, and a sample at each tick."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from cotenant.cli import periods, roots
from cotenant.kernel import sampler
from cotenant.kernel.cgroup import classes
from cotenant.model.sample import Sample
from cotenant.units import errors

PERIOD_MINIMUM_SECONDS = 0.005
PERIODS_IN_WINDOW = 3

Period = Annotated[str, typer.Option(metavar="TIME", help="Time between two reads, like 1s or 500ms.")]
Node = Annotated[str | None, typer.Option(metavar="NAME", help="The node's name in the sample; else the host's name.")]
Match = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GLOB=QOS",
        help="Groups of that path are of that QoS: LSE, LSR, LS (online), SYSTEM or BE (offline). A later one wins.",
    ),
]
LlcProbe = Annotated[
    bool,
    typer.Option("--llc-probe", help="In a virtual machine without counters: time the shared cache, some ms a second."),
]


class BadPeriod(errors.CotenantError):
    """Samples cannot be taken, or judged, that often or seldom."""


def check_window(window_seconds: float, period_s: float) -> None:
    """Refuse a period of which no three fit into the window of the rules: nothing would ever be known.

    :raises BadPeriod: in that case.
    """
    if window_seconds < PERIODS_IN_WINDOW * period_s:
        raise BadPeriod(
            f"--period {period_s:g}s: the rules judge over {window_seconds:g} s, which must hold "
            f"{PERIODS_IN_WINDOW} periods; give a shorter one, or --rules with a longer windowSeconds"
        )


def open_sampler(
    root: str, period: str, node: str | None, match: Sequence[str] | None = None, llc_probe: bool = False
) -> sampler.Sampler:
    """Return the sampler that the options ask for.

    :raises BadQuantity: if the period is not a duration.
    :raises BadPeriod: if it is shorter than a look takes.
    :raises BadMatch: if a match is not ``GLOB=QOS``.
    :raises BadRoot: if the root has no ``proc``.
    """
    period_s = periods.seconds(period)
    if period_s < PERIOD_MINIMUM_SECONDS:
        raise BadPeriod(f"--period {period}: one look takes milliseconds itself; give 5ms or more")
    matches = [classes.Match.parse(text) for text in match or ()]
    place = roots.open_root(root)
    return sampler.open_sampler(place, node=node, period_s=period_s, matches=matches, llc_probe=llc_probe)


def ticks(
    source: sampler.Sampler,
    count: int | None,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Sample]:
    """Yield a sample at the end of each period: ``count`` of them (None: without end), from one more read.

    Ticks keep to a grid, so that a late one does not delay the rest; a tick that was missed altogether is left out.
    """
    try:
        source.prime()
        due = now() + source.period_s
        done = 0
        while count is None or done < count:
            sleep(max(due - now(), 0.0))
            yield source.sample()
            done += 1
            late = now() - due
            due += source.period_s * (1 + max(int(late / source.period_s), 0))
    finally:
        source.close()
