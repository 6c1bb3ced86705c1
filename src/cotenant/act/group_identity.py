"""Which work is online and which is offline, said to the scheduler through whatever this kernel offers."""

from collections.abc import Iterator

from cotenant.act import cgroup, host_application, tasks
from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.pod import CPU_QOS_ANNOTATION, KubeQos, Pod, QosClass
from cotenant.model.policy import DEFAULT_GROUP_IDENTITY, ClassName, NodeSlo
from cotenant.model.snapshot import Controller, PodGroup, Snapshot
from cotenant.units.plan import PlanItem

CLASSES: tuple[ClassName, ...] = ("LSR", "LS", "BE", "SYSTEM")
_CLASS_OF: dict[str, ClassName] = {"LSE": "LSR", "LSR": "LSR", "LS": "LS", "BE": "BE", "SYSTEM": "SYSTEM"}


def enabled(slo: NodeSlo) -> bool:
    """Return whether some class has a CPU identity and the CPU policy is group identity."""
    policy = slo.qos.policies.cpu_policy
    return policy in (None, "", "groupIdentity") and any(
        slo.qos.of(name).cpu_qos.enable for name in ("LSR", "LS", "BE")
    )


def class_identity(slo: NodeSlo, name: ClassName) -> int:
    """Return the identity of a class: 0 where the class is not enabled."""
    settings = slo.qos.of(name).cpu_qos
    if not settings.enable:
        return 0
    return DEFAULT_GROUP_IDENTITY[name] if settings.group_identity is None else settings.group_identity


def directory_identity(slo: NodeSlo, qos: KubeQos) -> int:
    """Return the identity of a kubelet QoS directory, and of groups in it that no listed pod owns."""
    return {"Guaranteed": 0, "Burstable": class_identity(slo, "LS"), "BestEffort": class_identity(slo, "BE")}[qos]


def label_identity(slo: NodeSlo, qos: QosClass | str) -> int:
    """Return the identity of one of Koordinator's classes; 0 for anything else."""
    return class_identity(slo, _CLASS_OF[qos]) if qos in _CLASS_OF else 0


def pod_identity(slo: NodeSlo, pod: Pod) -> int:
    """Return the identity of a pod: its annotation (class LS only), its label, then the kubelet's class.

    An annotation without ``enable`` is not honoured and changes nothing; with ``enable: false`` the pod is ordinary.
    """
    if pod.qos_label is None:
        if pod.kube_qos != "Guaranteed":
            return directory_identity(slo, pod.kube_qos)
        return class_identity(slo, "LSR" if slo.qos.lsr_class.cpu_qos.enable else "LS")
    if pod.qos_label == "LS" and isinstance(pod.cpu_qos.get("enable"), bool):
        if not pod.cpu_qos["enable"]:
            return 0
        wanted = _annotated(pod)
        if wanted is not None:
            return wanted
    return label_identity(slo, pod.qos_label)


def _annotated(pod: Pod) -> int | None:
    """Return the identity that the pod's annotation names, or None where it names no valid one."""
    wanted = pod.cpu_qos.get("groupIdentity")
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) and -1 <= wanted <= 2 else None


@strategy(
    "group_identity",
    fields=(
        "spec.resourceQOSStrategy.policies.cpuPolicy",
        *(f"spec.resourceQOSStrategy.{name}Class.cpuQOS.enable" for name in ("lsr", "ls", "be", "system")),
        *(f"spec.resourceQOSStrategy.{name}Class.cpuQOS.groupIdentity" for name in ("lsr", "ls", "be", "system")),
        "spec.hostApplications",
    ),
    features=("cpu.qos_level", "cpu.bvt_warp_ns", "cpu.priority", "cpu.offline", "cpu.idle", "cpu.shares|cpu.weight"),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Give every pod the priority of its class, pod before containers, through the interface that the node has.

    Where a level sticks (openEuler) only pods with an explicit BE class are made offline, no QoS directory is
    written, and a pod that should not be offline any more is named for recreation. QoS directories are written where
    a level can be put back and the kubelet does not mind: on Anolis and TencentOS, never with ``cpu.idle``.
    """
    if not enabled(slo):
        _release(draft)
        return
    wanted = list(_wanted(draft, slo))
    _switches(draft, {identity for _, identity, _ in wanted})
    for group, identity, who in wanted:
        _state(draft, group, identity, who)
    if draft.snapshot.priority.policy_stays:
        _put_back_tasks(draft, slo)


def _wanted(draft: Draft, slo: NodeSlo) -> Iterator[tuple[str, int, str]]:
    """Yield each group with its identity and why, in the order of writing."""
    snapshot = draft.snapshot
    interface = snapshot.priority
    if interface.qos_directories_allowed() and interface.levels:
        yield from _directories(draft, slo)
    for group in snapshot.groups:
        if group.pod is None and interface.sticky:
            continue  # nobody says what it is, and a level is for life
        identity = _group_identity(draft, slo, group)
        who = f"{_describe(group)} has identity {identity}"
        yield group.path, identity, who
        if not interface.pod_level_only and interface.levels:
            for container in group.containers:
                yield container.path, identity, who
    for application in slo.host_applications:
        path = host_application.group_of(snapshot, application)
        if path is None:
            draft.notices.append(f"host application {application.name}: no cgroup of its own; left as it is")
            continue
        identity = label_identity(slo, application.qos)
        yield path, identity, f"host application {application.name} ({application.qos or 'no class'})"


def _directories(draft: Draft, slo: NodeSlo) -> Iterator[tuple[str, int, str]]:
    snapshot = draft.snapshot
    for qos, path in snapshot.qos_paths.items():
        identity = directory_identity(slo, qos)
        online = [g for g in snapshot.groups if g.qos == qos and g.pod and pod_identity(slo, g.pod) > identity]
        if identity < 0 and online:
            # An ancestor below 0 makes a task expellable whatever its own group says.
            draft.notices.append(f"{path} stays ordinary: {_describe(online[0])} in it is not offline")
            identity = 0
        yield path, identity, f"QoS directory of {qos} pods"


def _group_identity(draft: Draft, slo: NodeSlo, group: PodGroup) -> int:
    pod = group.pod
    if pod is None:
        return directory_identity(slo, group.qos)
    if pod.cpu_qos and pod.qos_label == "LS" and "enable" not in pod.cpu_qos:
        draft.notices.append(f"pod {pod.key}: annotation {CPU_QOS_ANNOTATION} lacks enable and is not honoured")
    elif pod.cpu_qos.get("enable") and pod.qos_label == "LS" and _annotated(pod) is None:
        draft.notices.append(
            f"pod {pod.key}: annotation {CPU_QOS_ANNOTATION} has no groupIdentity within -1..2; ignored"
        )
    identity = pod_identity(slo, pod)
    if draft.snapshot.priority.sticky and identity < 0 and (pod.qos_label != "BE" or pod.system_critical):
        if pod.qos_label not in (None, "BE"):
            draft.notices.append(f"pod {pod.key}: class {pod.qos_label} is never made offline where a level sticks")
        return 0
    if identity == 1 and draft.snapshot.priority.name.startswith("openeuler"):
        draft.notices.append(f"pod {pod.key}: identity 1 becomes level 0 here, which also expels sibling threads")
    return identity


def _state(draft: Draft, group: str, identity: int, who: str) -> None:
    snapshot = draft.snapshot
    interface = snapshot.priority
    for setting in interface.settings.get(identity, ()):
        controller: Controller = "memory" if setting.controller == "memory" else "cpu"
        path = snapshot.path(controller, group, setting.file)
        if path is None or not snapshot.files.exists(path):
            continue
        current = _word(snapshot, path)
        if interface.sticky and setting.controller == "cpu" and current not in (None, "0", setting.value):
            draft.left_out.append(f"{path} is {current} and stays so: recreate the pod; {who}")
            continue
        draft.write(path, setting.value, who, irreversible=setting.irreversible)
        if interface.forgets_weight and current == "1" and setting.value == "0":
            _restore_weight(draft, group)


def _word(snapshot: Snapshot, path: str) -> str | None:
    """Return the one word that a level's file holds, however the line ends, or None where it cannot be read."""
    text = snapshot.files.read(path)
    return None if text is None else text.strip()


def _restore_weight(draft: Draft, group: str) -> None:
    """State the weight that a pod's group is due, which leaving idle makes the kernel forget."""
    pod = next((g.pod for g in draft.snapshot.groups if g.path == group), None)
    if pod is None:
        return
    by_batch = pod.qos_label == "BE" and pod.has_extended_spec
    millicores = pod.batch_request_millicores() if by_batch else pod.request_millicores()
    cgroup.set_shares(draft, group, millicores, "leaving idle forgets the weight")


def _switches(draft: Draft, identities: set[int]) -> None:
    interface = draft.snapshot.priority
    used = {s.controller for identity in identities for s in interface.settings.get(identity, ()) if s.value != "0"}
    for switch in interface.switches:
        if switch.controller in used:
            draft.write(switch.path, switch.value, switch.reason)


def _put_back_tasks(draft: Draft, slo: NodeSlo) -> None:
    """Put tasks that came from an offline group back to the ordinary policy, which the kernel does not do."""
    snapshot = draft.snapshot
    main = snapshot.priority.settings[-1][0]
    for group in snapshot.groups:
        for path in (group.path, *(container.path for container in group.containers)):
            level = snapshot.path("cpu", path, main.file)
            if group.pod is None or level is None or _word(snapshot, level) != "0":
                continue
            if _group_identity(draft, slo, group) < 0:
                continue  # about to become offline
            for task in tasks.left_idle(snapshot, path):
                draft.step(
                    PlanItem(
                        op="set_policy",
                        path=f"{snapshot.proc}/{task}",
                        old="idle",
                        new="other",
                        strategy=draft.strategy,
                        reason=f"{_describe(group)}: left at SCHED_IDLE by an offline group that it was in",
                    )
                )


def _release(draft: Draft) -> None:
    """Put everything that we wrote back to ordinary."""
    snapshot = draft.snapshot
    interface = snapshot.priority
    values = {setting.file: setting for setting in interface.settings.get(0, ())}
    offline = {setting.file for setting in interface.settings.get(-1, ())}
    for path, before in snapshot.journal.items():
        group, _, file = path.rpartition("/")
        setting = values.get(file)
        if setting is None:
            if file in offline and before is not None:
                draft.release(path, before, "group identity is off")  # a weight has no value of its own for "ordinary"
            continue
        current = _word(snapshot, path)
        if interface.sticky and setting.controller == "cpu" and current not in (None, setting.value):
            draft.left_out.append(f"{path} is {current} and stays so: recreate the pod")
            continue
        draft.release(path, setting.value, "group identity is off")
        if interface.forgets_weight and current == "1":
            mount = snapshot.hierarchies["cpu"].path
            _restore_weight(draft, group.removeprefix(f"{mount}/"))
    for switch in interface.switches:
        old = snapshot.journal.get(switch.path)
        if old is not None:
            draft.release(switch.path, old, "group identity is off")


def _describe(group: PodGroup) -> str:
    if group.pod is None:
        return f"unlisted group {group.path}"
    return f"pod {group.pod.key} ({group.pod.qos_label or group.pod.kube_qos})"
