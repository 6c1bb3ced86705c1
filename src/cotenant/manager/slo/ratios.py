"""What a node's CPUs count for beside the fleet's reference CPU, and how much more of a resource a node shows than it
has: Koordinator's two ratios, worked out from strategies and from what the node says of its CPUs.
"""

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from cotenant.api.koordinator.topology import CpuBasicInfo
from cotenant.manager.overcommit.strategy import exact
from cotenant.model.node import CPU_NORMALIZATION_RANGE, cpu_normalization
from cotenant.units.malformed import MALFORMED

DEFAULT_RATIO = "1.00"
"""What the annotation holds where normalization is off."""
SAME_WITHIN = Fraction(1, 100)
"""Ratios closer than this are the same."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """The text of the normalization annotation, or None with the reason why it cannot be told; it then stays."""

    text: str | None
    reason: str = ""


def _field(info: CpuBasicInfo) -> str:
    """Return which ratio of a model is for these CPUs."""
    if info.hyper_thread_enabled and info.turbo_enabled:
        return "hyperThreadTurboEnabledRatio"
    if info.hyper_thread_enabled:
        return "hyperThreadEnabledRatio"
    return "turboEnabledRatio" if info.turbo_enabled else "baseRatio"


def basic_info(text: str | None) -> CpuBasicInfo | None:
    """Return what the annotation says, or None where there is none that can be read."""
    try:
        found = msgspec.json.decode(text or "", type=CpuBasicInfo)
    except MALFORMED:
        return None
    return found if found.cpu_model else None


def normalization(strategy: Mapping[str, Any], label: str | None, info: CpuBasicInfo | None) -> Ratio:
    """Return a node's ratio. Its label ``cpu-normalization-enabled`` goes over the strategy's ``enable``."""
    if label is not None and label.lower() not in ("true", "false"):
        return Ratio(None, f"label cpu-normalization-enabled is {label!r}: write true or false")
    enabled = strategy.get("enable") is True if label is None else label.lower() == "true"
    if not enabled:
        return Ratio(DEFAULT_RATIO)
    if info is None:
        return Ratio(None, "its NodeResourceTopology has no cpu-basic-info")
    field = _field(info)
    models: Mapping[str, Mapping[str, float]] = strategy.get("ratioModel") or {}
    value = (models.get(info.cpu_model) or {}).get(field, strategy.get("defaultRatio"))
    if value is None:
        where = field if info.cpu_model in models else "ratioModel"
        return Ratio(None, f"{where} has nothing for {info.cpu_model!r}")
    low, high = CPU_NORMALIZATION_RANGE
    if not low <= value <= high:
        return Ratio(None, f"{value} for {info.cpu_model!r} is not within {low:g}..{high:g}")
    return Ratio(f"{value:.2f}")


def amplification(strategy: Mapping[str, Any], normalization_text: str | None) -> dict[str, float]:
    """Return by how much each resource is amplified; empty where none is.

    The CPU's is what the strategy says, times what the CPUs count for.
    """
    said = strategy.get("resourceAmplificationRatio") or {} if strategy.get("enable") is True else {}
    found = {name: exact(value) for name, value in said.items()}
    cpu = found.get("cpu", Fraction(1)) * cpu_normalization(normalization_text)[0]
    if cpu > 1:
        found["cpu"] = cpu
    return {name: float(value) for name, value in sorted(found.items())}


def amplification_text(ratios: Mapping[str, float]) -> str | None:
    """Return the annotation for these ratios, or None where there is to be none."""
    if not ratios:
        return None
    return msgspec.json.encode({key: int(v) if v == int(v) else v for key, v in ratios.items()}).decode()


def same_normalization(held: str | None, wanted: str) -> bool:
    """Return whether an annotation says what is wanted, closely enough. None says that the CPUs count for one."""
    number, goal = _number(held or DEFAULT_RATIO), _number(wanted)
    return number is not None and goal is not None and abs(number - goal) < SAME_WITHIN


def same_amplification(held: str | None, wanted: str | None) -> bool:
    """Return whether an annotation says what is wanted, however it is written."""
    if held is None or wanted is None:
        return held == wanted
    try:
        return bool(msgspec.json.decode(held) == msgspec.json.decode(wanted))
    except MALFORMED:
        return False


def _number(text: str | None) -> Fraction | None:
    try:
        return None if text is None else exact(text)
    except ValueError:
        return None
