"""Which interface this node has, in the one order in which it is safe to ask."""

from cotenant.kernel import errors, paths
from cotenant.kernel.priority import anolis, mainline, openeuler, protocol, tencent
from cotenant.kernel.priority.evidence import Evidence
from cotenant.model.priority import InterfaceName, PriorityInterface

ORDER: tuple[protocol.Find, ...] = (
    openeuler.find,
    # Before generation 2: hosts that show both lock up when core scheduling, which generation 2 wants, is on.
    anolis.find_bvt,
    anolis.find_priority,
    tencent.find,
    # After the vendors': their kernels have cpu.idle as well.
    mainline.find_idle,
    mainline.find_weights,
)


class OverrideUnavailable(errors.KernelError):
    """The interface that the user asked for is not on this node."""


def probe(root: paths.Root) -> PriorityInterface:
    """Return the best interface that this node's files show. Reads only; call again when kubepods has appeared."""
    evidence = Evidence(root)
    for find in ORDER:
        found = find(evidence)
        if found is not None:
            return found
    raise AssertionError("weights-only answers everywhere")


def choose(root: paths.Root, name: InterfaceName) -> PriorityInterface:
    """Return the interface that the user named, found on this node.

    :raises OverrideUnavailable: if this node's files do not show it.
    """
    evidence = Evidence(root)
    find = next(find for names, find in protocol.FAMILIES.items() if name in names)
    found = find(evidence)
    if found is None or found.name != name:
        best = probe(root)
        raise OverrideUnavailable(
            f"priority interface {name} is not on this node: leave the override out to use {best.name} ({best.reason})"
        )
    return found
