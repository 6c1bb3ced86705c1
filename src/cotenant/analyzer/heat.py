"""How each node fared over the last hour, one byte for each slot of time: the fleet page's heat map. Pure."""

from cotenant.model.evaluation import Bucket

SLOT_SECONDS = 60.0
SLOTS = 60
NOTHING = "."
"""No sample came in that slot."""
_LETTERS: dict[Bucket, str] = {"unknown": "u", "none": "0", "low": "1", "medium": "2", "high": "3", "severe": "4"}
_HARD = "5"
_ORDER = NOTHING + "u012345"


def letter_of(bucket: Bucket, hard: bool) -> str:
    """Return the letter of a state: a bucket's, or that of a hard limit, which is worst."""
    return _HARD if hard else _LETTERS[bucket]


class Heat:
    """The worst state of each node in each slot; 60 bytes a node. Times are monotonic seconds."""

    def __init__(self, slot_seconds: float = SLOT_SECONDS, slots: int = SLOTS) -> None:
        self._slot_seconds = slot_seconds
        self._slots = slots
        self._rows: dict[str, bytearray] = {}
        self._newest = -1

    def note(self, node: str, bucket: Bucket, hard: bool, now: float) -> None:
        """Count a node's state in the slot of a time."""
        self._advance(int(now // self._slot_seconds))
        row = self._rows.get(node)
        if row is None:
            row = self._rows[node] = bytearray(NOTHING.encode() * self._slots)
        at = self._newest % self._slots
        letter = letter_of(bucket, hard)
        if _ORDER.index(letter) > _ORDER.index(chr(row[at])):
            row[at] = ord(letter)

    def _advance(self, slot: int) -> None:
        if self._newest < 0:
            self._newest = slot
        for passed in range(self._newest + 1, min(slot, self._newest + self._slots) + 1):
            at = passed % self._slots
            for row in self._rows.values():
                row[at] = ord(NOTHING)
        self._newest = max(self._newest, slot)

    def row(self, node: str, now: float) -> str:
        """Return a node's slots, oldest first, the present one last; empty for a node never heard of."""
        self._advance(int(now // self._slot_seconds))
        row = self._rows.get(node)
        if row is None:
            return ""
        first = (self._newest + 1) % self._slots
        return (row[first:] + row[:first]).decode()

    def keep(self, nodes: set[str]) -> None:
        """Forget all nodes but these."""
        for gone in set(self._rows) - nodes:
            del self._rows[gone]
