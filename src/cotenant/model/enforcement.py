"""What a loop that acts shows of itself: targets beside what is there, who was held back, and what that cost whom."""

from typing import Literal

import msgspec

from cotenant.model.incident import Isolated
from cotenant.model.ledger import Ledger

Mode = Literal["enforce", "dry-run", "observe", "paused"]
"""``observe``: another co-location agent runs here. ``paused``: a restore was asked for; a new start ends that."""


class HeldFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file that a strategy owns: what it should hold and what it holds. ``actual`` None: it cannot be read."""

    path: str
    target: str
    actual: str | None
    strategy: str
    reason: str
    original: str | None = None
    """What it held before us, where we wrote it."""
    refusal: str | None = None
    """Why the target is not there, where that is known."""


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    """A file that somebody keeps writing over, what they wrote last, and where protection went."""

    path: str
    rewrites: int
    found: str
    answer: str = ""
    """Empty while nothing is decided."""


class EnforcementState(msgspec.Struct, frozen=True, kw_only=True):
    """The newest round. CPU of offline work is in millicores; None is unknown."""

    mode: Mode
    policy: str
    interface: str
    conflict: str = ""
    online_groups: int = 0
    offline_groups: int = 0
    held: list[HeldFile] = []
    contests: list[Contest] = []
    isolation: Isolated | None = None
    isolations_total: int = 0
    offline_delivered_millicores: float | None = None
    offline_withheld_millicores: float | None = None
    """What offline tasks that were ready to run did not get because of a quota, in CPU time."""
    ledger: Ledger = Ledger()
    """What offline groups asked for, got and lost."""
    rounds_total: int = 0
    failed_rounds_total: int = 0
    writes_total: int = 0
    refused_total: int = 0
    rewrites_total: int = 0
    journal_lost_total: int = 0
    """Records of the journal that it had no room for, or that cannot be read."""
    fast_path_total: int = 0
    notices: list[str] = []
    skipped: list[str] = []
