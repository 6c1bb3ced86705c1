"""Strategy templates as tables, for ``cotenant config templates``."""

import typer

from cotenant.cli import printing
from cotenant.detect import presets, rules, templates


def print_all(found: templates.Templates) -> None:
    """Print one line a type."""
    rows = [
        (
            one.name,
            one.qos_class or "",
            one.affinity or "",
            ", ".join(f"{name} {weight:g}" for name, weight in one.weights.items()) or "the rules' own",
            str(len(one.thresholds) or ""),
        )
        for _, one in sorted(found.items())
    ]
    printing.print_table(["TYPE", "QOS", "AFFINITY", "WEIGHTS", "THRESHOLDS"], rows, "There are no templates.")


def print_one(one: templates.Template) -> None:
    """Print a template, with what the preset has in its place."""
    preset = presets.get()
    typer.echo(f"{one.name}: {one.description}")
    typer.echo(f"QoS class {one.qos_class or 'as it is'}, affinity {one.affinity or 'as the manager was told'}\n")
    weights = [
        (name, f"{one.weights.get(name, rule.weight):g}", f"{rule.weight:g}")
        for name, rule in preset.detections.items()
    ]
    printing.print_table(["DETECTION", "WEIGHT", "PRESET"], weights, "")
    listed = {
        signal.signal: signal
        for rule in preset.detections.values()
        for signal in (*rule.signals, *rule.fallback_signals)
    }
    thresholds = [(signal, _text(points), _of(listed.get(signal))) for signal, points in sorted(one.thresholds.items())]
    if thresholds:
        typer.echo()
        printing.print_table(["SIGNAL", "NORMAL / THRESHOLD / SATURATION", "PRESET"], thresholds, "")


def _text(points: templates.Points | rules.SignalRule) -> str:
    return f"{points.normal:g} / {points.threshold:g} / {points.saturation:g}"


def _of(signal: rules.SignalRule | None) -> str:
    if signal is None:
        return "not listed"
    return "by the kind of each disk" if signal.scale else _text(signal)
