"""Volcano's and rubik's words for what a pod is, read where Koordinator's label is missing.

``volcano.sh/qos-level`` is volcano-agent's. ``volcano.sh/preemptable`` is a word to Volcano's scheduler that rubik also
takes for "offline"; since it says nothing of the kind by itself, it counts only where the operator says so.
"""

from collections.abc import Mapping
from typing import Literal

QOS_LEVEL = "volcano.sh/qos-level"
PREEMPTABLE = "volcano.sh/preemptable"

_LEVELS: Mapping[str, Literal["LS", "BE"]] = {"LC": "LS", "HLS": "LS", "LS": "LS", "BE": "BE"}


def qos_of(annotations: Mapping[str, str], preemptable_is_offline: bool) -> Literal["LS", "BE"] | None:
    """Return the class that a pod's annotations give it, or None where they give none.

    volcano-agent's three online levels are one here: what is beyond LS (whole CPUs) needs somebody to assign them.
    """
    level = _LEVELS.get(annotations.get(QOS_LEVEL, ""))
    if level is None and preemptable_is_offline and annotations.get(PREEMPTABLE) == "true":
        return "BE"
    return level
