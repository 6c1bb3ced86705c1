"""Typed values out of a YAML or JSON document, each complaint with its file, line and key, and the nearest valid name.

PyYAML's nodes carry the lines; scalars are read by YAML 1.2's core schema (``1e5`` is a number and ``on`` is a word,
as in JSON), since what PyYAML makes of them by itself surprises people.
"""

import difflib
import math
import re
from collections.abc import Collection, Iterator
from typing import Any

import yaml

from cotenant.detect import catalogue, errors

MAX_BYTES = 1024 * 1024
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"[-+]?[0-9]+")
_SPECIAL = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def documents(text: str, file: str) -> list[yaml.Node]:
    """Return the documents of a YAML or JSON text that are not empty.

    :raises BadRules: if the text is neither, with the line.
    """
    if len(text) > MAX_BYTES:
        raise errors.BadRules([errors.Problem(file, 1, "", f"larger than {MAX_BYTES} bytes: not a file of rules")])
    if text.lstrip().startswith(("{", "[")):
        text = text.replace("\t", " ")  # JSON may be indented by tabs, YAML may not; a JSON string cannot hold one
    try:
        found = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "not YAML"
        line = mark.line + 1 if mark else 1
        raise errors.BadRules([errors.Problem(file, line, "", f"not YAML or JSON: {what}")]) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise errors.BadRules([errors.Problem(file, line, "", f"not YAML or JSON: {error.reason}")]) from error
    except RecursionError as error:
        raise errors.BadRules([errors.Problem(file, 1, "", "nested too deeply to be a file of rules")]) from error
    return [node for node in found if not is_null(node)]


def is_null(node: yaml.Node) -> bool:
    """Return whether a node is null or an empty plain scalar."""
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NULL


def line_of(node: yaml.Node) -> int:
    """Return the line of a file, from 1, that a node begins in."""
    return int(node.start_mark.line) + 1


class Reader:
    """Reads nodes of one file and collects what is wrong with it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[errors.Problem] = []

    def refuse(self, node: yaml.Node, key: str, message: str, nearest: str | None = None) -> None:
        """Note a problem."""
        self.problems.append(errors.Problem(self.file, line_of(node), key, message, nearest))

    def mapping(self, node: yaml.Node, key: str, known: Collection[str] | None) -> dict[str, yaml.Node]:
        """Return a mapping's values that are not null by key; unknown and duplicate keys are noted and left out."""
        return {name: value for name, value in self.entries(node, key, known) if not is_null(value)}

    def entries(self, node: yaml.Node, key: str, known: Collection[str] | None) -> Iterator[tuple[str, yaml.Node]]:
        """Yield a mapping's entries, null values too; unknown and duplicate keys are noted and left out."""
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, key, f"{_said(node)} where keys and values are meant")
            return
        seen: dict[str, int] = {}
        for name_node, value in node.value:
            if not isinstance(name_node, yaml.ScalarNode):
                self.refuse(name_node, key, "a key must be a word")
                continue
            name = str(name_node.value)
            path = f"{key}.{name}" if key else name
            if name in seen:
                self.refuse(name_node, path, f"given twice, first on line {seen[name]}")
                continue
            seen[name] = line_of(name_node)
            if known is not None and name not in known:
                close = catalogue.nearest(name, known)
                there_are = "" if close else f"; valid here: {', '.join(known)}"
                self.refuse(name_node, path, f"unknown key{there_are}", close)
                continue
            yield name, value

    def sequence(self, node: yaml.Node, key: str) -> list[yaml.Node]:
        """Return a list's items."""
        if not isinstance(node, yaml.SequenceNode):
            self.refuse(node, key, f"{_said(node)} where a list is meant")
            return []
        return list(node.value)

    def text(self, node: yaml.Node, key: str) -> str | None:
        """Return a string, or None after noting that it is not one."""
        if isinstance(node, yaml.ScalarNode) and (node.style is not None or isinstance(_value(node.value), str)):
            return str(node.value)
        self.refuse(node, key, f"{_said(node)} where a string is meant; put it in quotes")
        return None

    def choice(self, node: yaml.Node, key: str, words: Collection[str]) -> str | None:
        """Return one of some words, or None after noting that it is not one."""
        word = self.text(node, key)
        if word is None or word in words:
            return word
        close = difflib.get_close_matches(word, words, 1, 0)
        self.refuse(node, key, f"{word!r} is not one of {', '.join(words)}", close[0] if close else None)
        return None

    def boolean(self, node: yaml.Node, key: str) -> bool | None:
        """Return true or false, or None after noting that it is neither."""
        value = _plain(node)
        if isinstance(value, bool):
            return value
        self.refuse(node, key, f"{_said(node)} where true or false is meant")
        return None

    def number(self, node: yaml.Node, key: str) -> float | None:
        """Return a finite number, or None after noting that it is not one."""
        value = _plain(node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(node, key, f"{_said(node)} where a number is meant")
            return None
        if not math.isfinite(value):
            self.refuse(node, key, f"{node.value} is not a finite number")
            return None
        return value

    def whole(self, node: yaml.Node, key: str) -> int | None:
        """Return a whole number, or None after noting that it is not one."""
        value = self.number(node, key)
        if value is None:
            return None
        if value != int(value):
            self.refuse(node, key, f"{node.value} where a whole number is meant")
            return None
        return int(value)


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        return _value(node.value)
    return node.value if isinstance(node, yaml.ScalarNode) else None


def _value(word: str) -> Any:
    if word in _BOOLEAN:
        return _BOOLEAN[word]
    if word in _NULL:
        return None
    if _WHOLE.fullmatch(word) and len(word) < 300:  # a longer one may be more than a float can be
        return int(word)
    if _NUMBER.fullmatch(word):
        return float(word)
    return float(word.replace(".", "", 1)) if _SPECIAL.fullmatch(word) else word


def _said(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    value = str(node.value)
    if is_null(node):
        return "nothing"
    return repr(value if len(value) <= 40 else value[:37] + "…")
