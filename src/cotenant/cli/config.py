"""``cotenant config``: the rules of detection, checked, explained, and rolled back."""

import pathlib
from typing import Annotated, Any

import typer

from cotenant.cli import cluster, options
from cotenant.detect import provenance

app = typer.Typer(no_args_is_help=True)

Data = Annotated[
    pathlib.Path | None,
    typer.Option(metavar="DIR", help="Data directory of `cotenant up`; else where it is by itself."),
]
OnCluster = Annotated[pathlib.Path | None, typer.Option("--kubeconfig", metavar="FILE", help="On this cluster.")]
InCluster = Annotated[bool, typer.Option("--cluster", help="On the cluster of KUBECONFIG or ~/.kube/config.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="On a cluster: which DetectionRuleConfig.")]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="On a cluster: the analyzer's; the kubeconfig's by default.")
]


@app.command()
def check(
    files: Annotated[list[pathlib.Path], typer.Argument(metavar="FILE…", help="DetectionRuleConfig, YAML or JSON.")],
    period: Annotated[
        str, typer.Option(metavar="TIME", help="Sampling period that a window must hold three of.")
    ] = "1s",
    as_json: options.Json = False,
) -> None:
    """Say whether files of rules are valid; if not, where, at which key, and the nearest valid name.

    Exit 1: some file is not valid; 2: some file cannot be read.
    """
    from cotenant.cli import periods, printing
    from cotenant.detect import errors
    from cotenant.local import rules_file

    period_s = periods.seconds(period)
    answers: list[dict[str, Any]] = []
    status = 0
    for file in files:
        answer: dict[str, Any] = {"file": str(file), "valid": True, "rules": [], "problems": [], "remarks": []}
        try:
            parsed = rules_file.load(file, period_s)
        except errors.BadRules as error:
            answer |= {"valid": False, "problems": list(error.problems)}
            status = max(status, 2 if isinstance(error, errors.UnreadableRules) else 1)
        else:
            answer["rules"] = [one.rules.name for one in parsed]
            answer["remarks"] = [remark for one in parsed for remark in one.remarks]
        answers.append(answer)
    if as_json:
        printing.print_json({"valid": all(answer["valid"] for answer in answers), "files": answers})
    else:
        for answer in answers:
            for problem in answer["problems"]:
                typer.echo(f"cotenant: {problem}", err=True)
            for remark in answer["remarks"]:
                typer.echo(f"note: {remark}", err=True)
            if answer["valid"]:
                typer.echo(f"{answer['file']}: valid ({', '.join(answer['rules'])})")
    if status:
        raise typer.Exit(status)


@app.command()
def explain(
    file: Annotated[pathlib.Path | None, typer.Argument(metavar="FILE", help="Else the preset default.")] = None,
    as_json: options.Json = False,
) -> None:
    """Print every value in force and where it came from: a line of the file, or the preset and its reason."""
    from cotenant.cli import printing
    from cotenant.local import rules_file

    if file is None:
        _print_values(provenance.of_preset("default"), as_json)
        return
    parsed = rules_file.load(file)
    if as_json:
        printing.print_json({one.rules.name: provenance.effective(one) for one in parsed})
        return
    for one in parsed:
        if len(parsed) > 1:
            typer.echo(f"{one.rules.name}:")
        _print_values(provenance.effective(one), as_json)


@app.command()
def presets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print all values of one, with their reasons.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the presets, or print one."""
    from cotenant.cli import printing
    from cotenant.detect import presets as known
    from cotenant.detect import rules

    chosen = next((preset for preset in rules.PRESETS if preset == name), None)
    if chosen:
        _print_values(provenance.of_preset(chosen), as_json)
    elif name is not None:
        raise typer.BadParameter(f"no preset {name!r}; there are {', '.join(rules.PRESETS)}")
    elif as_json:
        printing.print_json(known.DESCRIPTIONS)
    else:
        printing.print_table(["PRESET", "WHAT IT IS"], list(known.DESCRIPTIONS.items()), "")


@app.command()
def templates(
    name: Annotated[str | None, typer.Argument(metavar="TYPE", help="Print one, beside the preset.")] = None,
    file: Annotated[pathlib.Path | None, typer.Option(metavar="FILE", help="With those of a file of your own.")] = None,
    as_json: options.Json = False,
) -> None:
    """List the strategy templates by type of business, or print one."""
    from cotenant.cli import printing, templates_table
    from cotenant.detect import templates as known
    from cotenant.local import rules_file

    found = known.bundled() if file is None else known.over_bundled(rules_file.read_text(file), str(file))
    if name is not None and name not in found:
        raise typer.BadParameter(f"no type {name!r}; there are {', '.join(sorted(found))}")
    if as_json:
        printing.print_json(known.document(found if name is None else {name: found[name]}))
    elif name is not None:
        templates_table.print_one(found[name])
    else:
        templates_table.print_all(found)


@app.command()
def history(
    data: Data = None,
    kubeconfig: OnCluster = None,
    in_cluster: InCluster = False,
    name: Name = "default",
    namespace: Namespace = None,
    as_json: options.Json = False,
) -> None:
    """List the rules that `cotenant up --rules FILE` took, or with --kubeconfig the generations on a cluster."""
    from cotenant.cli import printing

    if kubeconfig is not None or in_cluster:
        from cotenant.kube import revisions as kept

        listed = cluster.ask(
            kubeconfig,
            "cotenant-config",
            lambda client: kept.history_by_name(client, namespace or client.namespace, name),
        )
        if as_json:
            printing.print_json([{"number": one.revision, "spec": one.data.get("spec")} for one in listed])
            return
        lines = [(str(one.revision), one.metadata.creation_timestamp or "") for one in listed]
        printing.print_table(["REVISION", "SINCE"], lines, f"No revisions of {name}: the analyzer keeps them.")
        return
    from cotenant.local import listening, revisions

    found = revisions.Revisions(listening.data_place(data)).history()
    if as_json:
        printing.print_json(found)
        return
    rows = [(str(revision.number), revision.time, revision.cause, revision.file) for revision in found]
    printing.print_table(["REVISION", "SINCE", "CAUSE", "FILE"], rows, "No revisions: `up --rules FILE` keeps them.")


@app.command()
def rollback(
    number: Annotated[
        int | None, typer.Argument(metavar="N", help="Else the newest that differs from what is in force.")
    ] = None,
    data: Data = None,
    rules: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="Write here; else to the file that the revision was read from."),
    ] = None,
    kubeconfig: OnCluster = None,
    in_cluster: InCluster = False,
    name: Name = "default",
    namespace: Namespace = None,
    as_json: options.Json = False,
) -> None:
    """Write an earlier revision back to its file, or with --kubeconfig into its object on a cluster."""
    from cotenant.cli import printing

    if kubeconfig is not None or in_cluster:
        from cotenant.kube import revisions as kept

        chosen = cluster.ask(
            kubeconfig,
            "cotenant-config",
            lambda client: kept.roll_back(client, namespace or client.namespace, name, number),
        )
        if as_json:
            printing.print_json({"name": name, "revision": chosen.revision})
        else:
            typer.echo(f"detectionruleconfig/{name}: rules of revision {chosen.revision} written back")
        return
    from cotenant.local import listening, revisions

    taken = revisions.Revisions(listening.data_place(data)).roll_back(number, rules)
    target = str(rules or taken.file)
    if as_json:
        printing.print_json({"revision": taken.number, "time": taken.time, "file": target})
    else:
        typer.echo(f"{target}: rules of revision {taken.number} ({taken.time}) written back")


def _print_values(values: list[provenance.Value], as_json: bool) -> None:
    from cotenant.cli import printing

    if as_json:
        printing.print_json(values)
        return
    for value in values:
        where = f"{value.origin}: {value.reason}" if value.reason else value.origin
        typer.echo(f"{value.key.removeprefix('spec.')}: {_text(value.value)}\n    {where}")


def _text(value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, dict):
        points = " / ".join(f"{value[key]:g}" for key in ("normal", "threshold", "saturation"))
        extras = [str(value[key]) for key in ("scale", "condition") if key in value]
        return f"{value['signal']} {points}" + (f" ({'; '.join(extras)})" if extras else "")
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else "none" if value == [] else str(value)
