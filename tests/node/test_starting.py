import json
import pathlib
from fractions import Fraction

import msgspec
import pytest
from tests.act.machine import Machine

from cotenant.kernel import enforcing, executor
from cotenant.model.node import Cpu, Node, Pool, Topology
from cotenant.model.policy import NodeSlo, ThresholdStrategy
from cotenant.model.priority import PriorityInterface
from cotenant.model.snapshot import HeldFiles, Snapshot
from cotenant.node import nri, starting
from cotenant.node.kubelet import Kubelet, PodSource, Settings
from cotenant.node.policy import Policy
from cotenant.units.clock import ManualClock

SPEC = {"containers": {"c": {"limits": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "100Mi"},
                             "requests": {"kubernetes.io/batch-cpu": "500"}}}}  # fmt: skip


def pod(
    labels: dict[str, str], annotations: dict[str, str], parent: str = "/kubepods/besteffort/podu"
) -> nri.StartedPod:
    return nri.StartedPod("ns", "p", "u", labels, annotations, parent)


def snapshot() -> Snapshot:
    cpus = tuple(Cpu(id=n, core=n) for n in range(4))
    return Snapshot(
        files=HeldFiles({}),
        hierarchies={},
        groups=(),
        topology=Topology(cpus=cpus, share_pools=(Pool(0, "0-1"), Pool(1, "2-3"))),
        node=Node(capacity_millicores=4000, capacity_memory_bytes=1 << 30),
        priority=PriorityInterface(name="weights-only", versions={}, levels=(), settings={}, reason="test"),
    )


def adjustment(seen: nri.StartedPod, slo: NodeSlo | None = None) -> nri.Adjustment:
    return starting.adjustment_of(snapshot(), starting.model_of(seen, ("c",)), slo or NodeSlo())


def test_batch_resources_are_there_from_the_start() -> None:
    seen = pod({"koordinator.sh/qosClass": "BE"}, {"node.koordinator.sh/extended-resource-spec": json.dumps(SPEC)})
    assert adjustment(seen) == nri.Adjustment(shares=512, quota_usec=50_000, memory_limit_bytes=100 << 20)


def test_while_suppression_is_by_quota_the_container_has_none() -> None:
    seen = pod({"koordinator.sh/qosClass": "BE"}, {"node.koordinator.sh/extended-resource-spec": json.dumps(SPEC)})
    slo = NodeSlo(threshold=ThresholdStrategy(enable=True, cpu_suppress_policy="cfsQuota"))
    assert adjustment(seen, slo).quota_usec == -1


def test_fast_cpus_need_less_of_a_quota() -> None:
    seen = pod({"koordinator.sh/qosClass": "BE"}, {"node.koordinator.sh/extended-resource-spec": json.dumps(SPEC)})
    fast = msgspec.structs.replace(snapshot().node, cpu_normalization_ratio=Fraction(5, 4))
    on_fast = msgspec.structs.replace(snapshot(), node=fast)
    wanted = starting.adjustment_of(on_fast, starting.model_of(seen, ("c",)), NodeSlo())
    assert (wanted.quota_usec, wanted.shares) == (40_000, 512)


def test_cpus_that_the_scheduler_gave_come_without_a_quota() -> None:
    given = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "2-3"})}
    seen = pod({"koordinator.sh/qosClass": "LSR"}, given, "/kubepods/podu")
    assert adjustment(seen) == nri.Adjustment(quota_usec=-1, cpus="2-3")


def test_a_pod_that_asks_for_nothing_of_ours_is_left_alone() -> None:
    assert adjustment(pod({}, {}, "kubepods-burstable-podu.slice")) == nri.Adjustment()


def test_beside_another_agent_no_container_is_adjusted(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    root = machine.show(everything=True)
    clock = ManualClock()
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    kept = Policy("n1", "enforce")
    decisions = starting.Starting(PodSource(Kubelet(Settings()), clock), kept, enforcer)
    seen = pod({"koordinator.sh/qosClass": "BE"}, {"node.koordinator.sh/extended-resource-spec": json.dumps(SPEC)})
    assert decisions.adjust(seen, "c") == nri.Adjustment(shares=512, quota_usec=50_000, memory_limit_bytes=100 << 20)
    for name, text in (("comm", "koordlet\n"), ("cmdline", "/koordlet\0")):
        (root.proc / "77").mkdir(exist_ok=True)
        (root.proc / "77" / name).write_text(text)
    clock.advance(enforcing.REPROBE_SECONDS)
    assert decisions.adjust(seen, "c") is None
    kept.mode = "observe"
    assert decisions.adjust(seen, "c") is None


def test_the_ratio_that_counts_is_that_of_the_node_object(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    root, clock = machine.show(everything=True), ManualClock()
    enforcer = enforcing.Enforcer(root, executor.Executor(root, clock=clock), clock=clock)
    kept = Policy("n1", "enforce", follows_node=False)
    kept.take_node({"metadata": {"annotations": {"node.koordinator.sh/cpu-normalization-ratio": "2"}}})
    decisions = starting.Starting(PodSource(Kubelet(Settings()), clock), kept, enforcer)
    seen = pod({"koordinator.sh/qosClass": "BE"}, {"node.koordinator.sh/extended-resource-spec": json.dumps(SPEC)})
    wanted = decisions.adjust(seen, "c")
    assert wanted is not None
    assert wanted.quota_usec == 25_000


@pytest.mark.parametrize(
    ("parent", "qos"),
    [
        ("/kubepods/besteffort/podu", "BestEffort"),
        ("kubepods-burstable-podu.slice", "Burstable"),
        ("/kubepods.slice/kubepods-podu.slice", "Guaranteed"),
    ],
)
def test_the_kubelets_class_is_read_off_the_group(parent: str, qos: str) -> None:
    assert starting.kube_qos(parent) == qos
