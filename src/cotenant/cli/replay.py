"""``cotenant replay``: what the detectors say of recorded samples, one line each."""

import pathlib
import sys
from typing import Annotated

import typer

from cotenant.cli import printing
from cotenant.model import evaluation


def command(
    file: Annotated[pathlib.Path, typer.Argument(metavar="FILE", help="Samples, one JSON object a line; - is stdin.")],
    rules: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="Rules of detection; else the preset default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Evaluate recorded samples: one line for each, the same every time.

    Exit 2: a line is no sample; what came before it is printed. Exit 3: half a line at the end was left out.
    """
    import msgspec

    from cotenant.detect import engine, errors, presets
    from cotenant.local import recording, rules_file

    chosen = presets.get() if rules is None else rules_file.for_one_host(rules_file.load(rules)).rules
    judge = engine.Engine(chosen)
    encoder = msgspec.json.Encoder()
    follow = str(file) == "-"
    headed = as_json
    for number, taken in recording.read(file):
        try:
            found = judge.evaluate(taken)
        except errors.BadSamples as error:
            raise errors.BadSamples(f"{file}:{number}: {error}") from error
        if not headed:
            sys.stdout.write(f"{'TIME':<24} {'NODE':<15} {'LEVEL':>5} {'BUCKET':<7} {'KNOWN':>5} TRIGGERED\n")
            headed = True
        sys.stdout.write((printing.json_text(encoder.encode(found)) if as_json else _row(found)) + "\n")
        if follow:
            sys.stdout.flush()
    if not headed:
        sys.stderr.write(f"cotenant: {file}: no samples in it; write some with `cotenant record FILE`\n")


def _row(found: evaluation.Evaluation) -> str:
    level = "?" if found.interference_level is None else f"{found.interference_level:.2f}"
    said: list[str] = [*found.hard]
    for name, detection in found.detections.items():
        if detection.triggered:
            blamed = ", ".join(suspect.name for suspect in detection.suspects)
            said.append(f"{name} {detection.index or 0:.2f}" + (f" (by {blamed})" if blamed else ""))
    known = f"{found.coverage * 100:.0f} %"
    triggered = "; ".join(said)
    return f"{found.time:<24} {found.node:<15.15} {level:>5} {found.bucket:<7} {known:>5} {triggered}".rstrip()
