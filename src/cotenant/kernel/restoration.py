"""What a restore did: what was put back, and what was left, with the reason and a remedy."""

import msgspec


class Restored(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was put back: what it held, and what it holds again. ``note``: not to the letter, but to the same effect."""

    path: str
    found: str | None
    original: str | None
    note: str | None = None


class Left(msgspec.Struct, frozen=True):
    """One thing that was not put back: what it holds, what it held before us, why, and what a person can do."""

    path: str
    found: str | None
    original: str | None
    reason: str
    remedy: str
    pod_uid: str | None = None


class Restoration(msgspec.Struct):
    """What a restore did. ``unchanged`` had its original value already; ``gone`` vanished with its group or task."""

    restored: list[Restored] = []
    unchanged: int = 0
    gone: int = 0
    irreversible: list[Left] = []
    stale: list[Left] = []
    foreign: list[Left] = []
    failed: list[Left] = []
    pods_to_recreate: list[str] = []

    @property
    def complete(self) -> bool:
        """Whether everything is as it was before us."""
        return not (self.irreversible or self.stale or self.foreign or self.failed)
