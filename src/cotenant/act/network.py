"""Network priority of offline pods, where the kernel has one (openEuler)."""

from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.policy import NodeSlo

OFFLINE_CLASS = str(2**32 - 1)
"""What openEuler's network QoS takes as priority -1."""
ONLINE_CLASS = "0"


@strategy(
    "network",
    fields=("spec.resourceQOSStrategy.beClass.networkQOS.enable",),
    features=("net_cls.classid", "openEuler network QoS"),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Mark the traffic of pods labelled BE as offline through ``net_cls.classid``, where openEuler has network QoS.

    Bandwidth and water line are the node's own (``bwmcli -s``): they are not written. Elsewhere nothing is done, and
    that is said.
    """
    snapshot = draft.snapshot
    on = bool(slo.qos.be_class.network_qos.enable)
    if on and (snapshot.version("net_cls") != 1 or not snapshot.files.exists(f"{snapshot.proc}/qos/net_qos_bandwidth")):
        draft.skipped.append("unsupported: this kernel has no network QoS (openEuler's net_cls.classid and oncn-bwm)")
        return
    for group in snapshot.groups:
        if group.pod is None or group.pod.qos_label != "BE" or not group.pod.active:
            continue
        for path in (group.path, *(child.path for child in group.containers)):
            file = snapshot.path("net_cls", path, "net_cls.classid")
            if on:
                draft.write(file, OFFLINE_CLASS, f"pod {group.pod.key} (BE): offline traffic")
            else:
                draft.release(file, ONLINE_CLASS, "network QoS of class BE is off")
