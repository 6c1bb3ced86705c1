import dataclasses
import json
from typing import Any

import pytest
from tests.kube.conftest import ApiServer

from cotenant.act.migration import GATES, KINDS, gates_of
from cotenant.cli import migration as command
from cotenant.kube.client import Client
from cotenant.manager import migration

SLOS = "apis/slo.koordinator.sh/v1alpha1/nodeslos"
REPORTS = "apis/cotenant.io/v1alpha1/nodeinterferencereports"
IDENTITY = {name: {"cpuQOS": {"enable": True}} for name in ("lsClass", "beClass")}
SPEC: dict[str, Any] = {
    "resourceQOSStrategy": {
        **IDENTITY,
        "lsrClass": {"memoryQOS": {"enable": True}},
        "policies": {"netQOSPolicy": "tc"},
    },
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"},
}


def pod(name: str, label: str, node: str, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "labels": {"koordinator.sh/qosClass": label},
            "annotations": fields.pop("annotations", {}),
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": fields.pop("resources", {})}]},
        "status": {"phase": "Running", "qosClass": fields.pop("kube", "BestEffort")},
    }


@pytest.fixture
def koordinator(api: ApiServer) -> ApiServer:
    for name, interface, irreversible in (
        ("anolis", "anolis-bvt", False),
        ("oe", "openeuler-qos-level", True),
        ("old", "openeuler-qos-level", None),
        ("new", None, None),
    ):
        api.put(SLOS, name, spec=SPEC)
        if interface:
            checked = {} if irreversible is None else {"check": {"irreversible": irreversible}}
            api.put(REPORTS, name, status={"nodeFacts": {"priorityInterface": interface, **checked}})
        batch = {"requests": {"kubernetes.io/batch-cpu": "1000"}}
        api.put("api/v1/pods", f"be-{name}", **pod(f"be-{name}", "BE", name, resources=batch))
        noted = {"koordinator.sh/cpuQOS": '{"groupIdentity":1}'}
        api.put("api/v1/pods", f"ls-{name}", **pod(f"ls-{name}", "LS", name, annotations=noted, kube="Burstable"))
    arguments = ["-cgroup-root-dir=/host-cgroup/", "--feature-gates=BECPUEvict=true,CPUBurst=false"]
    container = {"name": "koordlet", "image": "koordlet:v1.8.0", "args": arguments}
    template = {"spec": {"containers": [container]}}
    api.put("apis/apps/v1/daemonsets", "koordlet", spec={"template": template})
    return api


async def test_each_node_says_what_would_change(koordinator: ApiServer, client: Client) -> None:
    found = {one.node: one for one in (await migration.read(client)).nodes()}
    assert set(found) == {"anolis", "oe", "old", "new"}
    irreversible = [one.subject for one in found["oe"].changes if one.kind == "irreversible"]
    assert irreversible == ["ns/be-oe"]
    assert not [one for one in found["anolis"].changes if one.kind == "irreversible"]
    old = {one.kind: one.text for one in found["old"].changes if one.subject == "node"}
    assert "irreversible" not in old
    assert "does not say whether that can be undone" in old["unknown"], "not known is not harmless"
    assert [one.kind for one in found["new"].changes if one.subject == "node" and "interface" in one.text] == [
        "unknown"
    ]
    for one in found.values():
        texts = [change.text for change in one.changes]
        assert any("CgroupReconcile" in text for text in texts), "memory QoS is asked for, the gate is off"
        assert any("BECPUEvict" in text for text in texts), "koordlet evicts, we do not unless told"
        assert any("annotation has no `enable`" in text for text in texts)
        assert any(change.subject.endswith("netQOSPolicy") for change in one.changes if change.kind == "refused")
        assert [KINDS.index(change.kind) for change in one.changes] == sorted(
            KINDS.index(change.kind) for change in one.changes
        )


async def test_quotas_that_will_be_divided_are_told(koordinator: ApiServer, client: Client) -> None:
    fast = {"name": "anolis", "annotations": {"node.koordinator.sh/cpu-normalization-ratio": "1.25"}}
    koordinator.put("api/v1/nodes", "anolis", metadata=fast)
    limited = {"limits": {"cpu": "1"}}
    koordinator.put("api/v1/pods", "web", **pod("web", "LS", "anolis", resources=limited, kube="Burstable"))
    running = await migration.read(client)
    texts = {one.node: [c.text for c in one.changes if "CPUNormalization" in c.text] for one in running.nodes()}
    (text,) = texts.pop("anolis")
    assert "1 LS and unlabelled pods are divided by the node's CPU normalization ratio 1.25" in text
    assert not any(texts.values()), "no ratio there"
    on = dataclasses.replace(running, gates={**GATES, "CPUNormalization": True})
    assert not [one for one in on.nodes("anolis")[0].changes if "CPUNormalization" in one.text]


async def test_offline_pods_with_native_memory_only_are_named(koordinator: ApiServer, client: Client) -> None:
    spec = {"resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": True}}}}
    koordinator.put(SLOS, "anolis", spec=spec)
    limited = {"limits": {"memory": "1Gi"}}
    koordinator.put("api/v1/pods", "native", **pod("native", "BE", "anolis", resources=limited, kube="Burstable"))
    running = await migration.read(client)
    assert not [one for one in running.nodes("anolis")[0].changes if one.subject == "ns/native"], "the gate is off"
    gated = dataclasses.replace(running, gates={**GATES, "CgroupReconcile": True})
    (found,) = [one for one in gated.nodes("anolis")[0].changes if "batch-memory" in one.text]
    assert (found.kind, found.subject) == ("differs", "ns/native")


async def test_pods_whose_like_the_webhook_refuses_are_named(koordinator: ApiServer, client: Client) -> None:
    """Koordinator lets LS with batch through, and LSR only with whole CPUs."""
    for name, label, priority, phase in (
        ("mixed", "LS", 5500, "Running"),
        ("good", "LS", 9500, "Running"),
        ("over", "LS", 5500, "Succeeded"),
    ):
        made = pod(name, label, "anolis")
        made["spec"]["priority"], made["status"]["phase"] = priority, phase
        koordinator.put("api/v1/pods", name, **made)
    exempt = pod("never-asked-about", "LS", "anolis")
    exempt["metadata"]["namespace"], exempt["spec"]["priority"] = "kube-system", 5500
    koordinator.put("api/v1/pods", "never-asked-about", **exempt)
    (found,) = (await migration.read(client)).nodes("anolis")
    refused = {one.subject: one for one in found.changes if "webhook" in one.text}
    assert set(refused) == {"ns/mixed"}
    assert refused["ns/mixed"].kind == "differs"
    assert "LS does not go with koord-batch" in refused["ns/mixed"].text


async def test_koordlet_is_found_among_other_containers_of_its_pod(koordinator: ApiServer, client: Client) -> None:
    (found,) = koordinator.objects["apis/apps/v1/daemonsets"].values()
    found["spec"]["template"]["spec"]["containers"].insert(0, {"name": "mesh-proxy", "image": "proxy:1"})
    running = await migration.read(client)
    assert running.image == "koordlet:v1.8.0"
    assert running.gates is not None
    assert running.gates["BECPUEvict"]


async def test_a_cluster_without_koordinator_is_empty(api: ApiServer, client: Client) -> None:
    api.objects["api/v1/pods"] = {}
    running = await migration.read(client)
    assert (running.nodes(), running.gates) == ((), None)


async def test_an_invalid_policy_is_named_not_hidden(koordinator: ApiServer, client: Client) -> None:
    koordinator.put(SLOS, "anolis", spec={"cpuBurstStrategy": 7})
    (found,) = (await migration.read(client)).nodes("anolis")
    assert "cpuBurstStrategy" in found.problem


@pytest.mark.parametrize(
    ("arguments", "gate", "state"),
    [
        (["--feature-gates=CPUEvict=true"], "CPUEvict", True),
        (["-feature-gates", "CPUBurst=false,CPUEvict=True"], "CPUBurst", False),
        (["-feature-gates=AllAlpha=true,AllBeta=true"], "CPUEvict", True),
        (["-feature-gates=AllAlpha=true,CPUEvict=false"], "CPUEvict", False),
        (["-feature-gates=CPUEvict=false,AllAlpha=true"], "CPUEvict", False),
        (["-feature-gates=AllAlpha=true"], "CPUBurst", True),
        (["-feature-gates=AllBeta=false"], "CPUBurst", False),
        (["-feature-gates=CPUEvict=1"], "CPUEvict", True),
        ([], "BECPUSuppress", True),
    ],
)
def test_gates_by_the_command_line(arguments: list[str], gate: str, state: bool) -> None:
    assert gates_of(arguments)[gate] is state
    assert set(GATES) <= set(gates_of(arguments))


async def test_what_a_person_reads(koordinator: ApiServer, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    running = await migration.read(client)
    command.print_plan(running, "", as_json=False)
    out = capsys.readouterr().out
    assert "priority interface openeuler-qos-level" in out
    assert "could not be undone: 1" in out
    command.print_plan(running, "oe", as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["koordlet"] == "koordlet:v1.8.0"
    assert document["nodes"][0]["changes"][0]["kind"] == "irreversible"
    with pytest.raises(command.NothingThere, match="nowhere"):
        command.print_plan(running, "nowhere", as_json=False)
