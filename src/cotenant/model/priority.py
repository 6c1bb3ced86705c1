"""A priority interface as data: which files hold offline work back on this node, and what each identity writes there.

Koordinator's identity is the common language: 2 online and expelling, 1 online, 0 ordinary, -1 offline. What a kernel
makes of it is a table (:attr:`PriorityInterface.settings`) that the user may change with :func:`remapped`.
Probing and the tables themselves are in ``cotenant.kernel.priority``; strategies see only this.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

InterfaceName = Literal[
    "openeuler-qos-level",
    "openeuler-qos-level-multi",
    "anolis-bvt",
    "anolis-priority",
    "tencent-offline",
    "mainline-idle",
    "weights-only",
]
NAMES: tuple[InterfaceName, ...] = get_args(InterfaceName)
IDENTITIES: tuple[int, ...] = (2, 1, 0, -1)
CgroupVersion = Literal[1, 2]


class Setting(msgspec.Struct, frozen=True):
    """One file of a group's directory and the value that goes in, without the final newline."""

    controller: str
    """``cpu`` or ``memory``: under which hierarchy the group's directory is."""
    file: str
    value: str
    irreversible: bool = False
    """The kernel will refuse to take this value back for the life of the group."""


class Switch(msgspec.Struct, frozen=True):
    """A node-wide file that must hold a value before the first group is written. ``path`` is relative to the root."""

    path: str
    value: str
    reason: str
    controller: str = "cpu"
    """Which settings need it: those of this controller."""


class PriorityInterface(msgspec.Struct, frozen=True, kw_only=True):
    """What one node's kernel offers to hold offline work back, found by looking for files."""

    name: InterfaceName
    versions: Mapping[str, CgroupVersion]
    """The cgroup version of each controller that the settings name (``cpu`` and ``memory`` differ on hybrid hosts)."""
    levels: tuple[int, ...]
    """The values that the main file takes, most protected first; empty where there is no such file."""
    settings: Mapping[int, tuple[Setting, ...]]
    """Identity to what is written; an identity with no settings is left as it is."""
    switches: tuple[Switch, ...] = ()
    """In the order in which they must be written."""
    sticky: bool = False
    """A level other than 0 stays for the life of the group: going back means recreating the pod."""
    inherits: bool = False
    """A new child copies its parent's level."""
    pushes: bool = False
    """A write reaches the whole subtree."""
    policy_stays: bool = False
    """Tasks moved out of an offline group keep SCHED_IDLE until somebody puts them back (``set_policy``)."""
    pod_level_only: bool = False
    """Kubelet breaks when a QoS directory carries this (``cpu.idle`` there refuses its ``cpu.weight``)."""
    forgets_weight: bool = False
    """Going back to identity 0 leaves the default weight: the group's own has to be written again."""
    core_scheduling: Literal["must_be_off", "must_be_on", "second_tier"] | None = None
    """``must_be_off``: both at once lock the machine up. ``second_tier``: cookies separate what the files cannot."""
    smt_expulsion: bool | None = None
    """Whether online work empties the sibling thread of offline work; None where this cannot be told."""
    notices: tuple[str, ...] = ()
    """What a person should know before this is used."""
    reason: str
    """Why this interface was chosen: the file that was found."""

    def files(self) -> tuple[str, ...]:
        """Return the names of all files that any identity writes, in the order of writing."""
        seen = {setting.file: None for identity in IDENTITIES for setting in self.settings.get(identity, ())}
        return tuple(seen)

    def qos_directories_allowed(self) -> bool:
        """Return whether kubelet's QoS directories may be written: never where a level sticks or is pushed down."""
        return not (self.sticky or self.pushes or self.pod_level_only)


def remapped(interface: PriorityInterface, table: Mapping[int, int]) -> PriorityInterface:
    """Return the interface with identities written as others: ``{1: -1}`` treats level 1 as offline.

    :raises KeyError: if the table names an identity that does not exist.
    """
    settings = {
        identity: interface.settings[table[identity]] if identity in table else interface.settings[identity]
        for identity in IDENTITIES
    }
    for identity in table:
        _ = settings[identity]
    return msgspec.structs.replace(interface, settings=settings)
