"""Core-scheduling cookies: which tasks may run on sibling threads of one core at the same time."""

from cotenant.act import tasks
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.pod import CORE_SCHED_GROUP_LABEL, CORE_SCHED_POLICY_LABEL, Pod
from cotenant.model.policy import DEFAULT_CORE_EXPELLER, ClassName, NodeSlo
from cotenant.model.snapshot import PodGroup
from cotenant.units.plan import PlanItem

_CLASS_OF: dict[str, ClassName] = {"LSE": "LSR", "LSR": "LSR", "LS": "LS", "BE": "BE"}


def cookie_group(slo: NodeSlo, pod: Pod) -> str | None:
    """Return the name of the group whose members may share a core with the pod, or None for "whoever has no cookie".

    Online pods that name no group stay without a cookie, so that they share cores with each other and the system.
    """
    policy = pod.labels.get(CORE_SCHED_POLICY_LABEL, "")
    name = _CLASS_OF.get(pod.qos)
    if pod.qos_label == "SYSTEM" or policy == "none" or name is None:
        return None
    group = pod.uid if policy == "exclusive" else pod.labels.get(CORE_SCHED_GROUP_LABEL, "")
    if not group and name != "BE":
        return None
    expeller = slo.qos.of(name).cpu_qos.core_expeller
    return (group or "offline") + (
        "-expeller" if (DEFAULT_CORE_EXPELLER[name] if expeller is None else expeller) else ""
    )


@strategy(
    "core_sched",
    fields=tuple(f"spec.resourceQOSStrategy.{name}Class.cpuQOS.coreExpeller" for name in ("lsr", "ls", "be")),
    features=("core scheduling (PR_SCHED_CORE)", "SMT"),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Keep offline tasks off the sibling threads of online tasks with cookies, when the CPU policy is ``coreSched``.

    Cookies separate and do not prioritise: offline tasks share one, online pods have none unless they ask. Anolis'
    group identity and core scheduling together lock a machine up, so that nothing is done there while the kernel's
    switch for group identity is on. Who should have none loses the one that we gave it.
    """
    snapshot = draft.snapshot
    wanted = slo.qos.policies.cpu_policy == "coreSched"
    if wanted and snapshot.priority.core_scheduling == "must_be_off":
        draft.left_out.append("coreSched: excluded on this kernel, where it and group identity lock the machine up")
        wanted = False
    if wanted and snapshot.files.read(f"{snapshot.sys}/devices/system/cpu/smt/active") != "1":
        draft.skipped.append("coreSched: no sibling threads are in use")
        return
    given = any(path.startswith(f"{snapshot.proc}/") and path.rpartition("/")[2].isdigit() for path in snapshot.journal)
    for group in snapshot.groups:
        if group.pod is None or not group.pod.active:
            continue
        name = cookie_group(slo, group.pod) if wanted else None
        if name is not None:
            _give(draft, group, name, f"pod {group.pod.key} shares cores with group {name} only")
        elif given:
            _give(draft, group, "", f"pod {group.pod.key} shares cores with whoever has no group")


def _give(draft: Draft, group: PodGroup, name: str, reason: str) -> None:
    for task in tasks.subtree(draft.snapshot, group.path):
        path = f"{draft.snapshot.proc}/{task}"
        draft.step(PlanItem(op="core_cookie", path=path, new=name, strategy=draft.strategy, reason=reason))
