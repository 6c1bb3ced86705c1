"""``cotenant top``: the page's first screen in a terminal."""

import contextlib
import os
import pathlib
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import msgspec
import typer

from cotenant.cli import printing, roots, sampling
from cotenant.model import series, summary, wording
from cotenant.model.enforcement import HeldFile
from cotenant.model.evaluation import Evaluation
from cotenant.model.sample import Cgroup, Sample

SORT_KEYS: dict[str, tuple[str, Callable[[Cgroup], float | None]]] = {
    "c": ("CPU", lambda cgroup: cgroup.cpu_used_ratio),
    "m": ("memory", lambda cgroup: cgroup.memory_bytes),
    "i": ("disk", summary.block_of),
    "p": ("stall", lambda cgroup: summary.stall_of(cgroup)[0]),
}
"""Key, what it sorts by, and how."""

MOODS = {"none": "green", "low": "green", "medium": "yellow", "high": "red", "severe": "red", "unknown": "dim"}
STATES = {
    "hurt": ("bold red", "TRIGGERED"),
    "tense": ("yellow", "raised"),
    "calm": ("green", "calm"),
    "unknown": ("dim", "unknown"),
}
"""Style and word of a detection's state."""

HELD_SHOWN = 3
STARTING = frozenset({"run"})
"""What a command's own start writes is no protection of others."""
LEAST_ROWS = 3
NARROW_COLUMNS = 72
"""A narrower screen shows of each group its CPU, its stall and what it is sorted by, and the name in full instead."""

SIGNALS = (
    ("cpu.used_ratio", "cpu.steal_ratio", "cpu.softirq_ratio", "cpu.run_queue_latency_p99_usec"),
    ("psi.cpu_some_ratio", "psi.io_some_ratio", "psi.memory_some_ratio", "psi.memory_full_ratio"),
    ("block.p50_usec", "block.p95_usec", "block.p99_usec", "memory.available_ratio"),
)
"""What the lines below the detections show."""

SHORT = {
    "cpu.used_ratio": "CPU",
    "cpu.steal_ratio": "steal",
    "cpu.softirq_ratio": "softirq",
    "cpu.run_queue_latency_p99_usec": "run queue p99",
    "psi.cpu_some_ratio": "stall: CPU",
    "psi.io_some_ratio": "I/O",
    "psi.memory_some_ratio": "memory",
    "psi.memory_full_ratio": "memory full",
    "block.p50_usec": "disk: median",
    "block.p95_usec": "p95",
    "block.p99_usec": "p99",
    "memory.available_ratio": "mem available",
}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints."""

    sample: Sample
    evaluation: Evaluation
    held: list[HeldFile] = []
    """Files that hold something because of cotenant, whichever process of it wrote them."""


def command(
    once: Annotated[bool, typer.Option("--once", help="Print one screen; so it does without a terminal.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one sample and its evaluation as JSON, and exit.")
    ] = False,
    sort: Annotated[str, typer.Option(metavar="KEY", help="c CPU, m memory, i disk, p stall.")] = "c",
    rules: Annotated[str | None, typer.Option(metavar="FILE", help="Rules of detection; else the preset.")] = None,
    root: roots.Option = "/",
    period: sampling.Period = "1s",
    match: sampling.Match = None,
    llc_probe: sampling.LlcProbe = False,
) -> None:
    """Show who is hurt, by what and by whom, once a second. Keys: c m i p sort, q quits."""
    from cotenant.detect import engine, presets
    from cotenant.kernel import holdings, paths
    from cotenant.local import rules_file

    def held() -> list[HeldFile]:
        return holdings.read(paths.Root(root), STARTING)

    if sort not in SORT_KEYS:
        raise typer.BadParameter(f"{sort!r} is none of {', '.join(SORT_KEYS)}", param_hint="--sort")
    source = sampling.open_sampler(root, period, None, match, llc_probe)
    wanted = presets.get()
    if rules is not None:
        wanted = rules_file.for_one_host(rules_file.load(pathlib.Path(rules), source.period_s)).rules
    sampling.check_window(wanted.window_seconds, source.period_s)
    judge = engine.Engine(wanted)
    single = once or as_json or not sys.stdout.isatty()
    # Three samples make a window's values known, one more lets a detection trigger.
    ticks = sampling.ticks(source, 4 if single else None)
    if not single:
        _live(ticks, judge.evaluate, held, sort)
        return
    for sample in ticks:
        evaluation = judge.evaluate(sample)
    if as_json:
        printing.print_json(Snapshot(sample=sample, evaluation=evaluation, held=held()))
        return
    from rich.console import Console

    console = Console(highlight=False)
    narrow = console.size.width < NARROW_COLUMNS
    console.print(screen(sample, evaluation, sort, lines=None, live=False, written=held(), narrow=narrow))


def _live(
    ticks: Iterator[Sample], evaluate: Callable[[Sample], Evaluation], held: Callable[[], list[HeldFile]], sort: str
) -> None:
    """Draw a screen at each tick until q or ctrl-C; a sort key takes effect at once."""
    import threading

    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    newest: list[tuple[Sample, Evaluation, list[HeldFile]]] = []
    failed: list[BaseException] = []
    stopped = threading.Event()

    def sample() -> None:
        try:
            for taken in ticks:
                newest[:] = [(taken, evaluate(taken), held())]
                if stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that draws
            failed.append(error)

    thread = threading.Thread(target=sample, name="sampling", daemon=True)
    thread.start()
    shown: object = None
    try:
        with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
            live.update("The first sample is on its way …", refresh=True)
            while not failed:
                key = pressed(0.1)
                if key == "q":
                    break
                sort = key if key in SORT_KEYS else sort
                now = (newest[0] if newest else None, sort, console.size)
                if now == shown or now[0] is None:
                    continue
                shown = now
                sample_, evaluation, written = now[0]
                drawn = screen(
                    sample_, evaluation, sort, console.size.height, True, written, console.size.width < NARROW_COLUMNS
                )
                live.update(drawn, refresh=True)
    finally:
        stopped.set()
        thread.join(3)
    if failed:
        raise failed[0]


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """Yield a function that waits that many seconds for a key; the terminal is as before afterwards."""
    if not sys.stdin.isatty():
        yield lambda seconds: time.sleep(seconds)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> str | None:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return None
        text = os.read(descriptor, 16).decode(errors="replace")
        return text[-1:].lower() if text else "q"

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def screen(
    sample: Sample,
    evaluation: Evaluation,
    sort: str,
    lines: int | None,
    live: bool,
    written: Sequence[HeldFile] = (),
    narrow: bool = False,
) -> Any:
    """Return one screen of so many lines, with as many groups as they leave room for (None: all of them)."""
    from rich.console import Group

    above: list[Any] = [*_head(sample, evaluation), *_who(sample, evaluation), *_written(written), ""]
    above += [_detections(evaluation), *_signals(sample, evaluation), ""]
    below: list[Any] = []
    missing = [f"{wording.title_of(name)} ({reason})" for name, reason in sample.missing.items() if "." not in name]
    if missing:
        below.append(_dim(f"unavailable: {', '.join(missing)}; reasons and remedies: cotenant check"))
    if live:
        below.append(_dim("sort: c CPU  m memory  i disk  p stall   q quit"))
    # Each part is one line, but for the detections; the groups have a heading and a rule.
    taken = len(above) - 1 + len(evaluation.detections) + len(below) + 2
    rows = None if lines is None else max(LEAST_ROWS, lines - taken)
    return Group(*above, _groups(sample, sort, rows, narrow), *below)


def _head(sample: Sample, evaluation: Evaluation) -> list[Any]:
    from rich.text import Text

    level = evaluation.interference_level
    style = f"bold {MOODS[evaluation.bucket]}"
    first = Text(summary.headline_of(evaluation), style=style, no_wrap=True, overflow="ellipsis")
    second = Text("interference level ", no_wrap=True, overflow="ellipsis")
    second.append("–" if level is None else f"{level:.2f}", style="bold")
    second.append(f" ({evaluation.bucket})   {wording.ratio_text(evaluation.coverage)} known")
    second.append(f"   {sample.node} {sample.time[11:19]} UTC", style="dim")
    return [first, second]


def _detections(evaluation: Evaluation) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2), expand=True)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)  # what is cut where a line does not fit
    for name, detection in evaluation.detections.items():
        signal = summary.leading_signal(detection)
        state = detection.signals[signal] if signal is not None else None
        style, word = STATES[summary.detection_state_of(detection)]
        text = "no signal known"
        if state is not None and signal is not None:
            value, threshold = wording.value_text(signal, state.value), wording.value_text(signal, state.threshold)
            text = f"{wording.title_of(signal)} {value} (threshold {threshold})"
        index = "–" if detection.index is None else f"{detection.index:.2f}"
        table.add_row(wording.DETECTION_TITLES[name], index, Text(word, style=style), text)
    return table


def _signals(sample: Sample, evaluation: Evaluation) -> list[Any]:
    from rich.text import Text

    values = series.values_of(sample, evaluation)
    lines = []
    for names in SIGNALS:
        line = Text(no_wrap=True, overflow="ellipsis")
        for name in names:
            line.append(f"{SHORT[name]} ", style="dim")
            line.append(f"{wording.value_text(name, values.get(name))}   ")
        lines.append(line)
    return lines


def _who(sample: Sample, evaluation: Evaluation) -> list[Any]:
    """Return who is hurt and by whom, and that it is not known where somebody is hurt; nothing else."""
    if summary.state_of(evaluation) != "hurt":
        return []
    victims = [f"{victim.name}: {victim.evidence}" for victim in summary.victims_of(evaluation)[:2]]
    suspects = [
        f"{suspect.name} ({wording.ratio_text(suspect.confidence)} sure): {suspect.evidence}"
        for suspect in summary.suspects_of(evaluation)[:2]
    ]
    nobody = (
        "not known: no group is marked online (--match)" if sample.missing.get("online") == "no_class" else "none named"
    )
    hard = [f"{wording.HARD_TITLES.get(limit, limit)}; take no new work" for limit in evaluation.hard]
    return [
        *(_line("hard", text, "bold red") for text in hard),
        *(_line("victim", text, "yellow") for text in victims or [nobody]),
        *(_line("suspect", text, "red") for text in suspects or ["not known: the evidence is weak"]),
    ]


def _line(title: str, text: str, style: str) -> Any:
    from rich.text import Text

    return Text(f"{title:<9}{text}", style=style, no_wrap=True, overflow="ellipsis")


def _written(held: Sequence[HeldFile]) -> list[Any]:
    """Return what cotenant holds: limits before priorities, and how many files more."""
    from rich.text import Text

    lines = []
    ordered = sorted(held, key=lambda file: file.strategy == "group_identity")
    for file in ordered[:HELD_SHOWN]:
        line = Text("held     ", no_wrap=True, overflow="ellipsis")
        group, _, name = file.path.rpartition("/")
        line.append(f"{group.rpartition('/')[2]} {name} ")
        line.append(file.actual or wording.UNKNOWN, style="bold" if file.actual == file.target else "bold red")
        line.append("" if file.actual == file.target else f", not {file.target}")
        line.append(f" (before {file.original or wording.UNKNOWN}): {file.reason}")
        lines.append(line)
    if len(held) > HELD_SHOWN:
        lines.append(_dim(f"held     {len(held) - HELD_SHOWN} files more; cotenant restore puts all back"))
    return lines


def _groups(sample: Sample, sort: str, rows: int | None, narrow: bool) -> Any:
    from rich import box
    from rich.table import Table

    title, value_of = SORT_KEYS[sort]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), expand=True)
    table.add_column("group", no_wrap=True, overflow="ellipsis", ratio=1)
    shown = [key for key in "cmip" if not narrow or key in ("c", "p", sort)]
    if not narrow:
        table.add_column("class", no_wrap=True, width=7)
    for key in shown:
        marked = f"{SORT_KEYS[key][0]} ↓" if key == sort else SORT_KEYS[key][0]
        table.add_column(marked, justify="right", no_wrap=True, width=10 if key in "mi" else 7)
    ordered = sorted(sample.cgroups, key=lambda cgroup: _known(value_of(cgroup)), reverse=True)
    for cgroup in ordered[:rows]:
        block = summary.block_of(cgroup)
        values = {
            "c": wording.ratio_text(cgroup.cpu_used_ratio),
            "m": wording.bytes_text(cgroup.memory_bytes),
            "i": wording.UNKNOWN if block is None else f"{wording.bytes_text(block)}/s",
            "p": wording.ratio_text(summary.stall_of(cgroup)[0]),
        }
        of_class = [] if narrow else [cgroup.class_ or wording.UNKNOWN]
        table.add_row(cgroup.name or cgroup.path, *of_class, *(values[key] for key in shown))
    return table if ordered else _dim(f"no groups: {sample.missing.get('cgroups', 'none found')} (sorted by {title})")


def _known(value: float | None) -> float:
    return -1.0 if value is None else value


def _dim(text: str) -> Any:
    from rich.text import Text

    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")
