"""Rules as they are for what a node hosts: one engine for each object of rules and each mix of workload types."""

from collections.abc import Iterable

from cotenant.detect import engine, rules, templates

MAX_VARIANTS = 256
"""Engines beyond the objects' own; a mix that comes later is judged by the object's rules as they are."""


class Variants:
    """Makes engines as mixes turn up."""

    def __init__(self, known: templates.Templates | None = None) -> None:
        self._templates = known if known is not None else templates.bundled()
        self._engines: dict[tuple[str, frozenset[str]], tuple[rules.Rules, engine.Engine]] = {}

    def replace(self, known: templates.Templates) -> None:
        """Take other templates; each engine follows when it is asked for."""
        self._templates = known
        self._engines = {key: (rules.Rules(name=""), made) for key, (_, made) in self._engines.items()}

    def of(self, hosted: Iterable[str]) -> frozenset[str]:
        """Return the types that change anything of how a node is judged."""
        known = (self._templates.get(name) for name in hosted)
        return frozenset(one.name for one in known if one is not None and (one.weights or one.thresholds))

    def engine_for(self, name: str, own: engine.Engine, hosted: frozenset[str]) -> engine.Engine:
        """Return the engine for an object's rules, whose own engine this is, on a node that hosts these types."""
        mix = self.of(hosted) if hosted else hosted
        if not mix:
            return own
        found = self._engines.get((name, mix))
        if found is None and len(self._engines) >= MAX_VARIANTS:
            return own
        if found is not None and found[0] is own.in_force:
            return found[1]
        source = templates.applied(own.in_force, self._templates, mix)
        made = engine.Engine(source) if found is None else found[1]
        if found is not None:
            made.replace(source)
        self._engines[name, mix] = (own.in_force, made)
        return made

    def forget(self, name: str) -> None:
        """Forget the engines of an object that is gone."""
        self._engines = {key: found for key, found in self._engines.items() if key[0] != name}
