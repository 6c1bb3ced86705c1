"""Which revision of the strategies a node gets, so that a change can reach a cluster in stages.

Every state of the ConfigMap that was accepted is a revision with a number. A node labelled
``cotenant.io/slo-revision=7`` gets revision 7; every other node gets the *active* one. That is the newest, unless the
ConfigMap carries the annotation ``cotenant.io/slo-changes: staged``: then a new revision waits, nodes get it by their
label, and :func:`cotenant.manager.slo.history.promote` makes it the active one in the end.
"""

import dataclasses
from collections.abc import Mapping

from cotenant.api.koordinator.slo_config import SloConfig
from cotenant.api.rollout import SLO_REVISION

CHANGES_ANNOTATION = "cotenant.io/slo-changes"
STAGED = "staged"


@dataclasses.dataclass(frozen=True, slots=True)
class Revision:
    """One state of the ConfigMap that was accepted."""

    number: int
    config: SloConfig

    @property
    def name(self) -> str:
        return str(self.number)


@dataclasses.dataclass(frozen=True, slots=True)
class Revisions:
    """The revisions there are: ``known`` by name, the newest, and the one that nodes get which name none."""

    known: Mapping[str, Revision]
    newest: Revision
    active: Revision

    def of(self, labels: Mapping[str, str]) -> Revision:
        """Return what a node with these labels gets; a label that names no revision counts as none."""
        return self.known.get(labels.get(SLO_REVISION, ""), self.active)


def revisions(known: list[Revision], active: str | None, staged: bool) -> Revisions:
    """Return who gets what. ``active`` is the name that was promoted last, which only counts while changes are staged.

    Without any revision all nodes get the defaults, as revision 0.
    """
    newest = max(known, key=lambda one: one.number, default=Revision(0, SloConfig()))
    by_name = {one.name: one for one in known}
    return Revisions(by_name, newest, by_name.get(active or "", newest) if staged else newest)
