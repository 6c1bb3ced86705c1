"""What the manager's parts share about strategies, for one term of leadership."""

from collections.abc import Mapping

from cotenant.api.koordinator.slo_config import Key, SloConfig
from cotenant.manager.slo.staging import Revision, Revisions


class SloState:
    """Written by :class:`cotenant.manager.slo.following.SloConfigFollower`, read by every other controller."""

    def __init__(self) -> None:
        self.revisions: Revisions | None = None
        """None: not known yet; nothing may be written that follows from strategies."""
        self.version = 0
        """Goes up with every change of what some node gets."""
        self.wrong: dict[Key, str] = {}
        """What cannot be used of the newest text, by key."""
        self.overlaps: dict[Key, str] = {}
        """Where one node is selected by several strategies of a key, in words."""
        self.notes: dict[Key, str] = {}
        """What else is to be said of a key: what follows from it, and cannot be had."""

    def publish(self, revisions: Revisions) -> None:
        """Put revisions in force."""
        self.revisions = revisions
        self.version += 1

    def of(self, labels: Mapping[str, str]) -> Revision | None:
        """Return the revision that a node with these labels gets, or None while that is not known."""
        return None if self.revisions is None else self.revisions.of(labels)

    def config_of(self, labels: Mapping[str, str]) -> SloConfig | None:
        """Return the strategies that a node with these labels gets, or None while that is not known."""
        revision = self.of(labels)
        return None if revision is None else revision.config
