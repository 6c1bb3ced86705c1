"""Each role holds exactly what its program asks of the API server: nothing that is missing, nothing more."""

from collections.abc import Callable

import pytest
from tests.charts import calls
from tests.charts.calls import Right
from tests.charts.conftest import Objects

pytestmark = pytest.mark.slow

ALL = (
    "node.evict=true",
    "manager.latency=true",
    "kata.enabled=true",
    "scheduler.extender.beside=true",
    "networkPolicy.enabled=true",
)
PROGRAMS = {
    "node": ("node.program",),
    "analyzer": ("analyzer.program",),
    "scheduler": ("scheduler.program",),
    "manager": ("manager.program",),
}
OF_UNINSTALL: dict[str, tuple[str, ...]] = {
    "cli__uninstall": (),
    "manager__leaving": (),
    "manager__overcommit__looking": ("clear", "_listed"),
    "scheduler__marking": ("clear", "clear_node", "set_taint"),
}
FOR_PEOPLE = {
    "analyzer": {
        Right("cotenant.io", "detectionruleconfigs", "get"),
        Right("cotenant.io", "detectionruleconfigs", "update"),
    },
}
"""What modules of a program ask for that commands for people call, and the program does not: `config rollback`."""
HANDED = {
    "analyzer": {},
    "node": {},
    "scheduler": {},
    "manager": {
        "manager/webhook/registering.py": "get, patch of webhook configurations; apply with --register-webhooks only",
        "manager/rollout/targets.py": "get of rules, ConfigMaps and revisions",
        "manager/slo/nodes.py": "delete of NodeSLOs and NodeMetrics",
    },
    "uninstall": {
        "manager/overcommit/looking.py": "list of Pods, Nodes and NodeResourceTopologies",
        "manager/leaving.py": "delete of what it lists by name",
    },
}
"""Calls whose resource is a variable, by module, with what it is."""
BY_HAND = {
    "node": {
        Right("", "nodes/pods", "get"),  # of the kubelet, which asks the API server whether we may
        Right("", "nodes/configz", "get"),
    },
    "manager": {
        *(
            Right("admissionregistration.k8s.io", f"{kind}webhookconfigurations", verb)
            for kind in ("mutating", "validating")
            for verb in ("get", "patch")
        ),
        Right("slo.koordinator.sh", "nodeslos", "delete"),
        Right("", "configmaps", "get"),
        Right("cotenant.io", "detectionruleconfigs", "get"),
    },
    "uninstall": {
        Right("", "pods", "list"),
        Right("topology.node.k8s.io", "noderesourcetopologies", "list"),
        Right("coordination.k8s.io", "leases", "delete"),
        Right("", "secrets", "delete"),
        Right("", "configmaps", "delete"),
        Right("apps", "controllerrevisions", "delete"),
    },
}
"""What those calls need."""


def granted(objects: Objects, account: str) -> set[Right]:
    """Return what the roles that an account is bound to allow, in whichever namespace."""
    bound = set()
    for one in objects:
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            names = {subject["name"] for subject in one["subjects"]}
            if f"cotenant-{account}" in names:
                kind = one["roleRef"]["kind"]
                bound.add((kind, one["roleRef"]["name"], one["metadata"].get("namespace")))
    return {
        Right(group, resource, verb)
        for one in objects
        if (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) in bound
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("account", [*PROGRAMS, "uninstall"])
def test_a_role_is_what_the_program_calls(render: Callable[..., Objects], account: str) -> None:
    asked = calls.of_functions(**OF_UNINSTALL) if account == "uninstall" else calls.of_programs(*PROGRAMS[account])
    needed, unknown = asked
    assert {one.where for one in unknown} == set(HANDED[account])
    needed = needed - FOR_PEOPLE.get(account, set()) | BY_HAND.get(account, set())
    held = granted(render("full", *ALL), account)
    assert {str(right) for right in needed - held} == set(), "the program asks for it and may not"
    assert {str(right) for right in held - needed} == set(), "the role allows it and nobody asks"


@pytest.mark.parametrize("account", [*PROGRAMS, "uninstall"])
def test_nobody_may_everything(render: Callable[..., Objects], account: str) -> None:
    for right in granted(render("full", *ALL), account):
        assert "*" not in (right.group, right.resource, right.verb)
        assert right.verb not in ("deletecollection", "escalate", "bind", "impersonate")


def test_secrets_are_read_by_name_only(render: Callable[..., Objects]) -> None:
    for one in render("full", *ALL):
        for rule in one.get("rules") or ():
            if "secrets" in rule.get("resources", ()) and rule["verbs"] != ["create"]:
                assert rule["resourceNames"] == ["cotenant-webhook-tls"], one["metadata"]["name"]


def test_the_kubelet_is_asked_with_the_least_that_it_knows(render: Callable[..., Objects]) -> None:
    old = granted(render("observe-only", version="1.30.0"), "node")
    assert Right("", "nodes/proxy", "get") in old
    new = granted(render("observe-only"), "node")
    assert not any(right.resource == "nodes/proxy" for right in new)
