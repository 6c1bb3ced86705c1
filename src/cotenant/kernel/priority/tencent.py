"""TencentOS 5.4: ``cpu.offline`` moves a group's tasks to a scheduling class below the ordinary one; reversible.

The file shows only with the boot parameters ``offline_class offline_group``.
"""

from cotenant.kernel.priority import protocol
from cotenant.kernel.priority.evidence import Evidence
from cotenant.model.priority import PriorityInterface

FILE = "cpu.offline"
VALUES = {2: "0", 1: "0", 0: "0", -1: "1"}


@protocol.family("tencent-offline")
def find(evidence: Evidence) -> PriorityInterface | None:
    """Return TencentOS's interface, or None without ``cpu.offline``."""
    directory = evidence.find("cpu", FILE)
    version = evidence.version("cpu")
    if directory is None or version is None:
        return None
    return PriorityInterface(
        name="tencent-offline",
        versions={"cpu": version},
        levels=(0, 1),
        settings=protocol.settings_of("cpu", FILE, VALUES),
        inherits=True,
        smt_expulsion=False,
        reason=f"{FILE} found in {evidence.root.relative(directory)}",
    )
