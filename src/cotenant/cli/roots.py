"""The ``--root`` option: a directory that stands for the machine's root."""

from typing import Annotated

import typer

from cotenant.kernel import paths
from cotenant.units import errors

Option = Annotated[str, typer.Option("--root", metavar="DIR", help="DIR/proc and DIR/sys stand for this machine's.")]


class BadRoot(errors.CotenantError):
    """The directory holds no tree of kernel files."""


def open_root(directory: str) -> paths.Root:
    """Return the root that ``--root`` names.

    :raises BadRoot: if it has no ``proc``.
    """
    root = paths.Root(directory)
    if not root.proc.is_dir():
        raise BadRoot(
            f"--root {directory}: there is no directory {root.proc}; give a directory that holds proc and sys"
        )
    return root
