"""How good each candidate is: its effective level, and the two schedulers' scales of it.

e = coverage·level + (1 − coverage)·m, with m the mean of the known levels among the candidates, so that what is not
known of a node neither helps nor harms it; an unknown or expired node has e = m; with nothing known all are equal.
"""

import math
from collections.abc import Sequence

from cotenant.api.reading import Row
from cotenant.scheduler.rules import Preset
from cotenant.units import grain


def effective_levels(rows: Sequence[Row | None], preset: Preset) -> list[float]:
    """Return e of each row, in 0..1; a row is None where its level is unknown or its report does not hold."""
    levels = [row.level or 0.0 for row in rows if row is not None]
    mean = sum(levels) / len(levels) if levels else 0.0
    if preset == "mco":
        return [mean if row is None else row.level or 0.0 for row in rows]
    return [mean if row is None else row.known_part + row.unknown_part * mean for row in rows]


def kube_scores(effective: Sequence[float]) -> list[int]:
    """Return whole scores in 0..10: kube-scheduler ignores an answer that holds anything else."""
    floor = math.floor
    return [floor(10 * (1 - e) + grain.HALF_UP) for e in effective]


def volcano_scores(effective: Sequence[float], weight: float) -> list[float]:
    """Return scores in 0..100 times the weight; Volcano adds them as they are."""
    return [100 * (1 - e) * weight for e in effective]
