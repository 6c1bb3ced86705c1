"""A program that runs for long goes on without the modules that read its command line: they hold memory for ever.

The process replaces itself (the same process id, signals and streams) by one that takes the settings, checked already,
out of its environment.
"""

import os
import pathlib
import sys
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

Settings = TypeVar("Settings")

ENVIRONMENT = "COTENANT_SETTINGS"
ALLOCATOR = {"MALLOC_ARENA_MAX": "2"}
"""glibc gives each thread a heap of its own and keeps what was free in it; unless the operator says otherwise."""


class Envelope(msgspec.Struct, Generic[Settings]):
    """The settings of a program, and how it logs."""

    settings: Settings
    as_json: bool = False


def become(module: str, settings: Any, as_json: bool) -> NoReturn:
    """Go on as ``python -m MODULE`` with these settings; the arguments stay where ``ps`` shows them."""
    text = msgspec.json.encode(Envelope(settings, as_json), enc_hook=str).decode()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(
        sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**ALLOCATOR, **os.environ, ENVIRONMENT: text}
    )


def received(kind: type[Settings], started_by: str) -> Envelope[Settings]:
    """Return what :func:`become` handed over; exits with 2 where nobody did."""
    text = os.environ.pop(ENVIRONMENT, None)
    if text is None:
        sys.stderr.write(f"this is a part of {started_by}: start that\n")
        raise SystemExit(2)
    return msgspec.json.decode(text, type=Envelope[kind], dec_hook=_path)  # type: ignore[valid-type]


def _path(kind: type, value: Any) -> Any:
    if issubclass(kind, pathlib.PurePath):
        return kind(value)
    raise NotImplementedError(f"{kind} in settings")
