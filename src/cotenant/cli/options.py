"""Options that several commands have, and commands whose options are the fields of a dataclass."""

import dataclasses
import inspect
import pathlib
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from cotenant.model.priority import InterfaceName

Given = TypeVar("Given")

GIVEN = "given"
"""The parameter of a command that gets its options."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LogJson = Annotated[bool, typer.Option("--json", help="Log as JSON lines.")]
Kubeconfig = Annotated[pathlib.Path | None, typer.Option(help="Which cluster; the usual one by default.")]
PodKubeconfig = Annotated[pathlib.Path | None, typer.Option(help="Which cluster; the pod's own by default.")]
Templates = Annotated[
    pathlib.Path | None, typer.Option(metavar="FILE", help="Strategy templates over the bundled ones.")
]
AnalyzerName = Annotated[
    str, typer.Option(metavar="NAME", help="What the analyzer's certificate must say; else its address.")
]
PriorityInterface = Annotated[
    InterfaceName | None, typer.Option(metavar="NAME", help="Use this one instead of the best that is found.")
]


def as_fields_of(kind: type[Given]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a command: the fields of a dataclass are its options, and ``given`` is an instance of it.

    A field is written as a parameter would be: ``Annotated[TYPE, typer.Option(…)] = DEFAULT``. Other parameters of the
    command stay its own. For programs with so many options that a parameter list would hide what is done with them.
    """

    def decorate(work: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(work).parameters.values() if one.name != GIVEN]
        hints = typing.get_type_hints(kind, include_extras=True)
        options = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default,
                annotation=hints[one.name],
            )
            for one in dataclasses.fields(kind)  # type: ignore[arg-type]
        ]

        def command(**values: Any) -> None:
            fields = {one.name: values.pop(one.name) for one in options}
            work(**values, given=kind(**fields))

        command.__doc__, command.__name__ = work.__doc__, work.__name__
        command.__annotations__ = {one.name: one.annotation for one in (*own, *options)}
        command.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
        return command

    return decorate
