"""Mainline: ``cpu.idle`` (5.15 and later), and where that is missing the smallest weight.

Neither is absolute: a SCHED_IDLE group keeps some 0.3 % of a busy CPU. Sibling threads are separated by whole-core
CPU sets first, and by core-scheduling cookies as a second tier; nothing expels.
"""

from cotenant.kernel.priority import protocol
from cotenant.kernel.priority.evidence import Evidence
from cotenant.model.priority import PriorityInterface, Setting

IDLE_FILE = "cpu.idle"
IDLE_VALUES = {2: "0", 1: "0", 0: "0", -1: "1"}
WEIGHT_FILES = {1: ("cpu.shares", "2"), 2: ("cpu.weight", "1")}


@protocol.family("mainline-idle")
def find_idle(evidence: Evidence) -> PriorityInterface | None:
    """Return the ``cpu.idle`` interface, or None without the file."""
    directory = evidence.find("cpu", IDLE_FILE)
    version = evidence.version("cpu")
    if directory is None or version is None:
        return None
    return PriorityInterface(
        name="mainline-idle",
        versions={"cpu": version},
        levels=(0, 1),
        settings=protocol.settings_of("cpu", IDLE_FILE, IDLE_VALUES),
        pod_level_only=True,
        forgets_weight=True,
        core_scheduling="second_tier",
        smt_expulsion=False,
        notices=("suppression is not absolute: an idle group keeps a small part of a busy CPU",),
        reason=f"{IDLE_FILE} found in {evidence.root.relative(directory)}",
    )


@protocol.family("weights-only")
def find_weights(evidence: Evidence) -> PriorityInterface | None:
    """Return the interface of last resort: offline work gets the smallest weight, other groups keep their own."""
    version = evidence.version("cpu") or 2
    file, value = WEIGHT_FILES[version]
    mounted = evidence.version("cpu") is not None
    reason = "no priority file in the cpu hierarchy" if mounted else "no cpu controller is mounted"
    return PriorityInterface(
        name="weights-only",
        versions={"cpu": version} if mounted else {},
        levels=(),
        settings=protocol.Table(
            {2: (), 1: (), 0: (), -1: (Setting("cpu", file, value),) if mounted else ()},
        ),
        core_scheduling="second_tier",
        smt_expulsion=False,
        notices=("only weights hold offline work back",),
        reason=reason,
    )
