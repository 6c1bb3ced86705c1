"""openEuler: ``cpu.qos_level``, with two levels or five, and ``memory.qos_level`` beside it.

A level other than 0 sticks for the life of the group, a write reaches the whole subtree and every task in it, and
suppression is absolute: an offline group runs only where no online task wants the CPU.
"""

from cotenant.kernel.priority import protocol
from cotenant.kernel.priority.evidence import Evidence
from cotenant.model.priority import PriorityInterface, Switch

FILE = "cpu.qos_level"
MEMORY_FILE = "memory.qos_level"
VALUES = {2: "0", 1: "0", 0: "0", -1: "-1"}
LEVEL_1_NOTICE = "identity 1 becomes level 0, which also expels offline work from sibling threads"


@protocol.family("openeuler-qos-level", "openeuler-qos-level-multi")
def find(evidence: Evidence) -> PriorityInterface | None:
    """Return openEuler's interface, or None without ``cpu.qos_level`` anywhere in the cpu hierarchy."""
    directory = evidence.find("cpu", FILE)
    version = evidence.version("cpu")
    if directory is None or version is None:
        return None
    multilevel = evidence.sysctl_exists("kernel/qos_level_weights")
    settings = protocol.settings_of("cpu", FILE, VALUES, sticky=True)
    versions = {"cpu": version}
    switches: tuple[Switch, ...] = ()
    memory_version = evidence.version("memory")
    if memory_version is not None and evidence.find("memory", MEMORY_FILE) is not None:
        settings += protocol.settings_of("memory", MEMORY_FILE, VALUES)
        versions["memory"] = memory_version
        if evidence.sysctl_exists("vm/memcg_qos_enable"):
            path = evidence.root.relative(evidence.root.proc / "sys/vm/memcg_qos_enable")
            switches = (Switch(path, "1", f"{MEMORY_FILE} is refused while it is off", "memory"),)
    return PriorityInterface(
        name="openeuler-qos-level-multi" if multilevel else "openeuler-qos-level",
        versions=versions,
        levels=(2, 1, 0, -1, -2) if multilevel else (0, -1),
        settings=settings,
        switches=switches,
        sticky=True,
        inherits=True,
        pushes=True,
        policy_stays=True,
        smt_expulsion=_expels(evidence),
        notices=(LEVEL_1_NOTICE, "a group that was made offline cannot go back: its pod has to be recreated"),
        reason=f"{FILE} found in {evidence.root.relative(directory)}",
    )


def _expels(evidence: Evidence) -> bool | None:
    """Expulsion is on unless the boot command line says ``nosmtexpell``, or the kernel was built without it."""
    if "nosmtexpell" in evidence.boot_words() or evidence.trace_event("sched", "sched_qos_smt_expel") is False:
        return False
    return evidence.smt_active()
