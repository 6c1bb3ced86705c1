"""Which rules each node is judged by: one engine for each object, the last good rules kept when a change is refused."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from cotenant.analyzer.variants import Variants
from cotenant.api import report, unstructured
from cotenant.detect import catalogue, engine, errors, parser, presets, rules, templates

DEFAULT = "default"
ALARM_SHARE = 0.8
"""A node sends at once when a value passes this share of a threshold."""


@dataclasses.dataclass(frozen=True, slots=True)
class Alarm:
    """A value of a signal at which a node is to send at once."""

    signal: str
    value: float
    falling: bool


@dataclasses.dataclass(slots=True)
class Book:
    """One object's rules: those in force with their engine, and what the newest version was refused for."""

    engine: engine.Engine
    generation: int
    refused: str | None = None
    refused_generation: int | None = None
    earlier: tuple[rules.Rules, int] | None = None
    """What was in force before, and its generation."""


class Rulebook:
    """All DetectionRuleConfig objects. Without one named ``default``, the preset of that name is for every node."""

    def __init__(self, fallback: rules.Rules | None = None, known: templates.Templates | None = None) -> None:
        self._fallback = fallback or presets.get()
        self._variants = Variants(known)
        self._hosted: dict[str, frozenset[str]] = {}
        self._engines: dict[str, engine.Engine] = {}
        """Which engine has the states of each node."""
        self.books: dict[str, Book] = {DEFAULT: Book(engine.Engine(self._fallback), 0)}
        self._assigned: dict[str, str] = {}
        self.rollbacks = 0

    def put(self, value: Mapping[str, Any]) -> Book:
        """Take one object as the API server gives it, and return its book; invalid rules change nothing in force."""
        name, generation = str(unstructured.metadata(value).get("name", "")), unstructured.generation(value)
        try:
            parsed = parser.parse_object(value, f"{rules.KIND} {name}").rules
        except errors.DetectError as error:
            return self.refuse(name, generation, " ".join(str(error).split()))
        book = self.books.get(name)
        if book is None:
            book = self.books[name] = Book(engine.Engine(parsed), generation)
            self._assigned.clear()
        else:
            if book.engine.in_force.node_selector != parsed.node_selector:
                self._assigned.clear()
            book.earlier = (book.engine.in_force, book.generation)
            book.engine.replace(parsed)
        book.generation, book.refused, book.refused_generation = generation, None, None
        return book

    def refuse(self, name: str, generation: int, text: str) -> Book:
        """Note why a generation of an object is not in force, and return the book, whose rules stay as they are."""
        book = self.books.get(name)
        if book is None:
            return Book(engine.Engine(self._fallback), 0, text, generation)
        book.refused, book.refused_generation = text, generation
        return book

    def roll_back(self, name: str, text: str) -> Book:
        """Put back what was in force before an object's newest generation; without an earlier one, forget its rules."""
        self.rollbacks += 1
        book = self.books[name]
        generation = book.generation
        if book.earlier is None:
            self.remove(name)
            return Book(engine.Engine(self._fallback), 0, text, generation)
        earlier, book.generation = book.earlier
        if earlier.node_selector != book.engine.in_force.node_selector:
            self._assigned.clear()
        book.engine.replace(earlier)
        book.earlier = None
        return self.refuse(name, generation, text)

    def remember_earlier(self, name: str, spec: Mapping[str, Any] | None, generation: int) -> None:
        """Take a spec for what was in force before an object's newest generation; None: the rules without objects.

        One that is not valid any more is not remembered.
        """
        book = self.books[name]
        if spec is None:
            book.earlier = (self._fallback, 0) if name == DEFAULT else None
            return
        value = {"apiVersion": report.API_VERSION, "kind": rules.KIND, "metadata": {"name": name}, "spec": spec}
        try:
            book.earlier = (parser.parse_object(value, f"{rules.KIND} {name}").rules, generation)
        except errors.DetectError:
            book.earlier = None

    def remove(self, name: str) -> None:
        """Forget an object; its nodes go to the next rules that match."""
        if name == DEFAULT:
            self.books[DEFAULT].engine.replace(self._fallback)
        elif self.books.pop(name, None) is not None:
            self._variants.forget(name)
            self._assigned.clear()

    def relabelled(self, node: str) -> None:
        """Choose a node's rules anew: its labels have changed."""
        self._assigned.pop(node, None)

    def hosts(self, node: str, types: Iterable[str]) -> None:
        """Take the types of business that a node hosts, which the weights and thresholds that judge it follow."""
        hosted = frozenset(types)
        if hosted:
            self._hosted[node] = hosted
        else:
            self._hosted.pop(node, None)

    def take_templates(self, known: templates.Templates) -> None:
        """Take other templates."""
        self._variants.replace(known)

    def name_for(self, node: str, labels: Mapping[str, str]) -> str:
        """Return the name of the object whose rules judge a node."""
        return self._assigned.get(node) or self._select(labels)

    def rules_for(self, node: str, labels: Mapping[str, str]) -> rules.Rules:
        """Return the rules that judge a node, with what it hosts counted in."""
        return self._engine(node, self.name_for(node, labels)).in_force

    def engine_for(self, node: str, labels: Mapping[str, str]) -> engine.Engine:
        """Return the engine that judges a node, from now on until its labels, what it hosts or the objects change.

        The states and windows of the node go with it from one engine to the next.
        """
        name = self._assigned.get(node)
        if name is None:
            name = self._assigned[node] = self._select(labels)
        chosen, before = self._engine(node, name), self._engines.get(node)
        if chosen is not before:
            if before is not None:
                before.hand_over(node, chosen)
            self._engines[node] = chosen
        return chosen

    def _engine(self, node: str, name: str) -> engine.Engine:
        return self._variants.engine_for(name, self.books[name].engine, self._hosted.get(node, frozenset()))

    def _select(self, labels: Mapping[str, str]) -> str:
        chosen = rules.select({name: book.engine.in_force for name, book in self.books.items()}, labels)
        return next((key for key, book in self.books.items() if book.engine.in_force is chosen), DEFAULT)

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._assigned.pop(node, None)
        self._hosted.pop(node, None)
        known = self._engines.pop(node, None)
        if known is not None:
            known.forget(node)


def version_of(source: rules.Rules) -> str:
    """Return a short name that changes when the rules do."""
    return f"{source.name}-{hashlib.sha256(repr(source).encode()).hexdigest()[:12]}"


def alarms_of(source: rules.Rules) -> list[Alarm]:
    """Return the values at which a node judged by these rules is to send at once."""
    found: dict[str, Alarm] = {}
    for detection in source.detections.values():
        if not detection.enabled:
            continue
        for signal in (*detection.signals, *detection.fallback_signals):
            try:
                falling = catalogue.find(signal.signal).direction == "falling"
            except errors.DetectError:
                continue
            value = signal.threshold / ALARM_SHARE if falling else signal.threshold * ALARM_SHARE
            found.setdefault(signal.signal, Alarm(signal.signal, value, falling))
    return list(found.values())
