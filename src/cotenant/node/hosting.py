"""What kinds of business a node hosts, and the rules that its agent judges it by itself."""

from collections.abc import Iterable

from cotenant.detect import presets, rules, templates
from cotenant.model.pod import Pod

MAX_TYPES = 16
TYPE_CHARACTERS = 63
"""What a label holds."""
ENDED = ("Succeeded", "Failed")


class Hosting:
    """Follows pods and templates. Written by one thread; :meth:`due` may be asked by another."""

    def __init__(self, known: templates.Templates | None = None) -> None:
        self._templates = known if known is not None else templates.bundled()
        self._due: rules.Rules | None = None
        self.types: tuple[str, ...] = ()

    def take_templates(self, known: templates.Templates) -> None:
        """Take other templates."""
        self._templates = known
        self._due = self._rules()

    def look(self, pods: Iterable[Pod]) -> None:
        """Take the newest list of pods; those that have ended do not count."""
        found = types_of(pods)
        if found != self.types:
            self.types = found
            self._due = self._rules()

    def due(self) -> rules.Rules | None:
        """Return the rules to judge by from now on, once; None while they are the same."""
        due, self._due = self._due, None
        return due

    def _rules(self) -> rules.Rules:
        return templates.applied(presets.get(), self._templates, self.types)


def types_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return the types of business of pods, by their label, in order and bounded."""
    named = {pod.labels.get(templates.WORKLOAD_TYPE_LABEL, "") for pod in pods if pod.phase not in ENDED}
    return tuple(sorted(name[:TYPE_CHARACTERS] for name in named if name)[:MAX_TYPES])
