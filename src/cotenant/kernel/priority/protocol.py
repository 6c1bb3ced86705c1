"""What each family of kernels implements, and the registry of those that exist."""

from collections.abc import Callable, Mapping
from typing import Protocol

from cotenant.kernel.priority.evidence import Evidence
from cotenant.model.priority import IDENTITIES, InterfaceName, PriorityInterface, Setting


class Find(Protocol):
    """Look for one family's files."""

    def __call__(self, evidence: Evidence) -> PriorityInterface | None:
        """Return the interface, or None where this kernel does not have it. Reads only."""


FAMILIES: dict[tuple[InterfaceName, ...], Find] = {}
"""Every family by the interfaces that it can answer with, filled by :func:`family`."""


def family(*names: InterfaceName) -> Callable[[Find], Find]:
    """Register a family's probe under the names of the interfaces that it can answer with."""

    def register(find: Find) -> Find:
        FAMILIES[names] = find
        return find

    return register


def settings_of(controller: str, file: str, values: Mapping[int, str], *, sticky: bool = False) -> "Table":
    """Return the table of one file. With ``sticky``, any value but 0 cannot be taken back."""
    return Table(
        {
            identity: (Setting(controller, file, values[identity], sticky and values[identity] != "0"),)
            for identity in IDENTITIES
        }
    )


class Table(dict[int, tuple[Setting, ...]]):
    """Identity to settings; tables of several files are joined with ``+`` in the order of writing."""

    def __add__(self, other: "Table") -> "Table":
        return Table({identity: self.get(identity, ()) + other.get(identity, ()) for identity in IDENTITIES})
