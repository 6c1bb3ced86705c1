"""Whether a node may be changed: its own check decides. Pure."""

import dataclasses

from cotenant.api.rollout import ColocationRollout
from cotenant.kernel.features import FEATURES
from cotenant.manager.rollout.gates import irreversible_allowed
from cotenant.manager.rollout.view import NodeView


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """``ready``: it may be changed. ``refused``: it may not, as long as what was found holds. Neither: not known."""

    ready: bool
    refused: bool
    reason: str = ""


_READY = Verdict(True, False)


def judge(rollout: ColocationRollout, node: NodeView, others: frozenset[str]) -> Verdict:
    """Return whether a node may be changed; ``others`` are the rollouts under way, by uid."""
    spec = rollout.spec
    if node.damaged:
        return Verdict(False, True, "its annotation cannot be read: remove it")
    if node.hold is not None and node.hold.uid in others:
        return Verdict(False, True, f"rollout {node.hold.rollout} holds it")
    if node.facts is None:
        return Verdict(False, False, "no report that holds")
    if not node.heard:
        return Verdict(False, False, "its samples do not arrive")
    check = node.facts.check
    if check is None:
        return Verdict(False, False, "its report has no check")
    if check.conflicts:
        return Verdict(False, True, f"its check finds {', '.join(check.conflicts)}")
    if node.facts.counts is None:
        return Verdict(False, False, "its agent does not count what the gates are about")
    level = spec.gates.interference_level
    if level is not None and level.max_increase is not None and node.level is None:
        return Verdict(False, False, "its level is not known, to which a later one would be held")
    lacking = [name for name in spec.entry.require if name in check.missing]
    if lacking:
        return Verdict(False, True, f"its check misses {', '.join(lacking)}")
    gate = spec.gates.irreversible_writes
    if spec.change.mode == "enforce" and not irreversible_allowed(gate.allowed, gate.allowed_interfaces, node):
        if check.irreversible is None:
            return Verdict(False, False, "not known whether its writes can be taken back")
        if check.irreversible:
            return Verdict(False, True, f"writes of {node.interface} cannot be taken back: irreversibleWrites")
    return _READY


def problems(rollout: ColocationRollout) -> list[str]:
    """Return what in a rollout's spec cannot be meant, where the API server's own rules did not say so."""
    spec, found = rollout.spec, []
    names = [stage.name for stage in spec.stages]
    if not names:
        found.append("spec.stages is empty: give one stage at least")
    for name in {name for name in names if names.count(name) > 1}:
        found.append(f"spec.stages has two named {name}")
    if spec.change.mode is None and spec.change.node_slo is None and spec.change.rules is None:
        found.append("spec.change changes nothing: give mode, nodeSLO or rules")
    for name in spec.entry.require:
        if name not in FEATURES:
            found.append(f"spec.entry.require: no feature {name}; `cotenant check` lists them")
    gate = spec.gates.interference_level
    if gate is not None and gate.max is None and gate.max_increase is None:
        found.append("spec.gates.interferenceLevel: give max, maxIncrease or both")
    latency = spec.gates.online_latency
    if latency is not None and latency.max_seconds is None and latency.max_increase_ratio is None:
        found.append("spec.gates.onlineLatency: give maxSeconds, maxIncreaseRatio or both")
    return found
