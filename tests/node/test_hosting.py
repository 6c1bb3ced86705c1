from cotenant.detect import presets, templates
from cotenant.model.pod import Pod
from cotenant.node.hosting import MAX_TYPES, Hosting, types_of


def pod(kind: str, phase: str = "Running") -> Pod:
    labels = {templates.WORKLOAD_TYPE_LABEL: kind}
    return Pod(namespace="ns", name=kind, uid=kind, kube_qos="Burstable", labels=labels, phase=phase)


def test_the_types_of_pods_that_run_in_order_and_bounded() -> None:
    assert types_of([pod("web"), pod("redis"), pod("web"), pod("scan", "Succeeded"), pod("")]) == ("redis", "web")
    assert len(types_of([pod(f"t{number}") for number in range(100)])) == MAX_TYPES


def test_rules_are_due_once_when_the_mix_or_the_templates_change() -> None:
    hosting = Hosting()
    hosting.look([])
    assert hosting.due() is None
    hosting.look([pod("redis")])
    due = hosting.due()
    assert due is not None
    assert due.detections["memoryPressure"].weight == 0.35
    hosting.look([pod("redis")])
    assert hosting.due() is None
    hosting.take_templates({})
    assert hosting.due() == presets.get()
