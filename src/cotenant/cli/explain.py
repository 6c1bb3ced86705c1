"""``cotenant explain``: why the level is what it is now, in sentences with numbers."""

import functools
import pathlib
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.cli import decisions, offline
from cotenant.units import errors
from cotenant.units.malformed import MALFORMED

if TYPE_CHECKING:
    import urllib.error

    from cotenant.detect.rules import Rules
    from cotenant.model.evaluation import Evaluation
    from cotenant.model.sample import Sample

    Explained = tuple[Sample, Evaluation, Rules | None]
    """The newest sample, what was made of it, and by which rules; None: not known."""

TIMEOUT_SECONDS = 5.0
REFUSAL_BYTES = 4096
"""What is read of an answer that refuses."""
OFFLINE = "offline"
_UP_REMEDY = "start `cotenant up`, give its address with --url, or give a file of samples"
_LEDGER_REMEDY = "start `cotenant up --enforce`, or give the analyzer's page with --url"
_SCHEDULER_REMEDY = "start `cotenant scheduler`, or give --scheduler URL"


class NoReport(errors.CotenantError):
    """There is nothing to explain."""


def command(
    file: Annotated[
        pathlib.Path | None,
        typer.Argument(
            metavar="WHAT",
            help="A file of samples: its end. pod or node: what `cotenant scheduler` answered about NAME. offline: "
            "what offline work got and lost. Nothing: what a running `cotenant up` says now.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="NAMESPACE/NAME of a pod, a node's name; with offline, if you like, a namespace or a group.",
        ),
    ] = None,
    rules: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="Rules, with a file of samples; else the preset default."),
    ] = None,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where `cotenant up` listens, or (offline) the analyzer's page.")
    ] = "http://127.0.0.1:7070",
    scheduler: Annotated[
        str, typer.Option(metavar="URL", help="Where `cotenant scheduler` answers.")
    ] = decisions.DEFAULT_URL,
    as_json: Annotated[bool, typer.Option("--json", help="The sentences and the evaluation, for programs.")] = False,
) -> None:
    """Say in sentences why the interference level is what it is, why a pod went where it did, or why a job is slow."""
    from cotenant.cli import printing
    from cotenant.detect import attribution, explanation

    if str(file) == OFFLINE and (name is not None or not pathlib.Path(OFFLINE).exists()):
        offline.show(name, url, functools.partial(_get, remedy=_LEDGER_REMEDY), as_json)
        return
    if name is not None:
        decisions.show(str(file), name, scheduler, functools.partial(_get, remedy=_SCHEDULER_REMEDY), as_json)
        return
    if str(file) in decisions.KINDS and not pathlib.Path(str(file)).exists():
        raise typer.BadParameter(f"{file}: which one? give {decisions.KINDS[str(file)]} after it")
    if file is None and rules is not None:
        raise typer.BadParameter("--rules goes with FILE; a running `cotenant up` has its own")
    taken, found, chosen = _of_running(url) if file is None else _of_file(file, rules)
    said = explanation.sentences(found, chosen) + explanation.throttled(taken, attribution.OWN_QUOTA_RATIO)
    if as_json:
        printing.print_json({"sentences": said, "dominant": explanation.dominant(found), "evaluation": found})
    else:
        typer.echo("\n".join(said))


def _of_file(file: pathlib.Path, rules: pathlib.Path | None) -> "Explained":
    from cotenant.detect import engine, presets
    from cotenant.local import recording, rules_file

    chosen = presets.get() if rules is None else rules_file.for_one_host(rules_file.load(rules)).rules
    judge = engine.Engine(chosen)
    last: Explained | None = None
    for _, taken in recording.read(file):
        last = taken, judge.evaluate(taken), chosen
    if last is None:
        raise NoReport(f"{file}: no samples in it; write some with `cotenant record {file}`")
    return last


def _of_running(url: str) -> "Explained":
    import msgspec

    from cotenant.model import evaluation, sample

    url = url.rstrip("/")  # `cotenant up` prints its address with one
    try:
        report = msgspec.json.decode(_get(f"{url}/api/v1/report"), type=dict[str, msgspec.Raw])
        found = msgspec.json.decode(report.get("evaluation", b"null"), type=evaluation.Evaluation)
        taken = sample.decode(_get(f"{url}/api/v1/sample"))
    except MALFORMED as error:
        raise NoReport(f"{url}: not an answer of `cotenant up`: {error}") from error
    return taken, found, None


def _get(url: str, remedy: str = _UP_REMEDY) -> bytes:
    import http.client
    import urllib.error
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise NoReport(f"{url}: not an address; write one like http://127.0.0.1:7070")
    # No proxy: what is asked listens on this machine or on one that was named.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        with error:
            raise NoReport(f"{url}: answered {error.code} {error.reason}{_why(error, remedy)}") from error
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        reason = getattr(reason, "strerror", None) or reason
        raise NoReport(f"{url}: no answer ({reason}); {remedy}") from error


def _why(error: "urllib.error.HTTPError", remedy: str) -> str:
    """Return what follows an answer that refuses: its own words, or that somebody else listens there."""
    import http.client

    import msgspec

    try:
        said = msgspec.json.decode(error.read(REFUSAL_BYTES), type=dict[str, str]).get("error", "")
    except (*MALFORMED, OSError, http.client.HTTPException):
        said = ""
    if error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return f": {said}; try again" if said else "; try again"
    if said and error.code != http.HTTPStatus.NOT_FOUND:
        return f": {said}"
    return f": another program listens there; {remedy}"
