"""``cotenant sample``: what the machine goes through now, as JSON lines or as a table."""

from typing import Annotated

import msgspec
import typer

from cotenant.cli import printing, roots, sampling
from cotenant.model.sample import Sample

GROUPS = ("psi", "block", "memory", "cpu", "llc", "net", "online", "offline")


def command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    root: roots.Option = "/",
    period: sampling.Period = "1s",
    count: Annotated[int, typer.Option(min=1, help="How many samples; one more read than that is made.")] = 1,
    node: sampling.Node = None,
    match: sampling.Match = None,
    llc_probe: sampling.LlcProbe = False,
) -> None:
    """Print samples of this machine's pressure, latency and load; what is unknown says why."""
    for sample in sampling.ticks(sampling.open_sampler(root, period, node, match, llc_probe), count):
        if as_json:
            printing.print_json_line(sample)
        else:
            printing.print_table(("signal", "value"), rows(sample), "No signal.")


def rows(sample: Sample) -> list[tuple[str, str]]:
    """Return each signal with its value, or why it is unknown."""
    lines = [("time", f"{sample.time} node {sample.node}")]
    for group in GROUPS:
        fields = msgspec.structs.asdict(getattr(sample, group))
        known = {name: value for name, value in fields.items() if isinstance(value, (int, float, str))}
        if not known:
            lines.append((group, f"unknown: {sample.missing.get(group, 'see --json')}"))
            continue
        for name, value in fields.items():
            full = f"{group}.{name}"
            if name in known:
                lines.append((full, _text(value)))
            elif value is None:
                lines.append((full, f"unknown: {sample.missing.get(full, sample.missing.get(group, '?'))}"))
    return lines


def _text(value: float | str) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
