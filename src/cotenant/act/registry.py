"""Strategies by registration: one file each, with what the reference pages are generated from."""

import dataclasses
from collections.abc import Callable

from cotenant.act.draft import Draft
from cotenant.model.policy import NodeSlo

Decide = Callable[[Draft, NodeSlo], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Strategy:
    """One strategy: snapshot and policy in, targets out."""

    name: str
    decide: Decide
    fields: tuple[str, ...]
    """The NodeSLO fields that it follows, as prefixes of the paths that :func:`cotenant.model.policy.fields` yields."""
    features: tuple[str, ...]
    """Kernel files and facilities it needs; without them it does what it says there."""
    needs_usage: bool
    summary: str


STRATEGIES: dict[str, Strategy] = {}
"""In order: of two strategies that want the same file, the earlier one has it."""
ORDER = (
    "group_identity",
    "cpu_suppress",
    "cpuset",
    "batch_resources",
    "cpu_burst",
    "cpu_normalization",
    "memory_qos",
    "cpu_evict",
    "memory_evict",
    "resctrl",
    "block_io",
    "system",
    "network",
    "core_sched",
)


def strategy(
    name: str,
    *,
    fields: tuple[str, ...],
    features: tuple[str, ...] = (),
    needs_usage: bool = False,
) -> Callable[[Decide], Decide]:
    """Register a function as a strategy; its docstring is its documentation."""

    def register(decide: Decide) -> Decide:
        summary = (decide.__doc__ or "").strip()
        STRATEGIES[name] = Strategy(name, decide, fields, features, needs_usage, summary)
        return decide

    return register
