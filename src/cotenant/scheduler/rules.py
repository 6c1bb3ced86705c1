"""The rules that the scheduler's answers follow, as set on the command line."""

import dataclasses
from typing import Literal

Preset = Literal["default", "mco"]
AppliesTo = Literal["all", "online", "offline", "none"]

VOLCANO_WEIGHT: dict[Preset, float] = {"default": 0.3, "mco": 1.0}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How verdicts and scores are made."""

    preset: Preset = "default"
    """``mco`` scores by the level alone, as openFuyao describes it; ``default`` pulls a level towards the mean of the
    candidates by what is not known of it."""
    volcano_weight: float = VOLCANO_WEIGHT["default"]
    """Volcano adds scores raw. Its own differ by a few points from pod to pod, so 100 points between a calm and a
    disturbed node would pile every pod on the calm one."""
    applies_to: AppliesTo = "all"
    """Which pods hard limits and scores are for. Kata readiness is for every pod that asks for Kata, and with
    ``none`` all there is."""
