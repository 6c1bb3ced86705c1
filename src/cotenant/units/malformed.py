"""What msgspec raises for bytes that are not what they should be, all of it.

Beside its own error it lets through that of a string which is not UTF-8, and that of a value which nests too deeply:
whoever may write one annotation, one sample or one file could otherwise end what reads it.
"""

import contextlib
import re
from typing import Any

import msgspec

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
BAD_VALUES = (ValueError, RecursionError, LookupError, AttributeError)
"""What PyYAML lets through beside its own error: no date (``2026-13-01``), too many digits, a tag that does not fit."""


_ENTRY = "[...]"
_MOST_ENTRIES = 1000
"""Of a map that are tried: beyond it, a complaint names the map alone."""
_PATH = re.compile(r"`(\$[^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")


def problem(error: Exception, value: Any, kind: Any, *, strict: bool = True) -> str:
    """Return what is wrong with a value that is not of a kind; ``value`` is plain, or still JSON.

    Of an entry of a map msgspec says only that it is one of them, as ``$.limits[...]``; here it is named.
    """
    text = str(error)
    found = _PATH.search(text)
    if found is None or _ENTRY not in found[1]:
        return text
    named, end = "$", 1
    steps: list[Any] = []
    rest = value
    with contextlib.suppress(*MALFORMED, LookupError, TypeError):
        if isinstance(value, bytes | str | msgspec.Raw):
            rest = value = msgspec.json.decode(value)
        for step in _STEP.finditer(found[1]):
            name, index = step[1], step[2]
            key = name if name is not None else int(index) if index is not None else None
            shown = step[0]
            if key is None:
                key = _wrong_entry(value, steps, rest, text, kind, strict)
                shown = f"[{msgspec.json.encode(key).decode()}]"
            steps.append(key)
            named, end = named + shown, step.end()
            rest = rest[key]
    return f"{text[: found.start(1)]}{named}{found[1][end:]}`"


def _wrong_entry(value: Any, steps: list[Any], entries: Any, text: str, kind: Any, strict: bool) -> Any:
    """Return the key of the map's entry that alone is complained of in the same words.

    :raises LookupError: if there is none, or too many would have to be tried.
    """
    for key in entries if len(entries) <= _MOST_ENTRIES else ():
        try:
            msgspec.convert(_with(value, steps, {key: entries[key]}), kind, strict=strict)
        except msgspec.ValidationError as error:
            if str(error) == text:
                return key
    raise LookupError


def _with(value: Any, steps: list[Any], inner: Any) -> Any:
    """Return a copy of a value with something else at one place in it."""
    if not steps:
        return inner
    copy = value.copy()
    copy[steps[0]] = _with(value[steps[0]], steps[1:], inner)
    return copy


def yaml_problem(error: Exception) -> str:
    """Return what is wrong with a YAML text, on one line and with its line where PyYAML tells it."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return str(getattr(error, "reason", "") or " ".join(str(error).split()) or type(error).__name__)
    return f"line {mark.line + 1}: {getattr(error, 'problem', None) or getattr(error, 'context', None)}"
