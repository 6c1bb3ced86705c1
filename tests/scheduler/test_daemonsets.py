from typing import Any

import pytest
from tests.kube.conftest import ApiServer

from cotenant.kube.client import Client
from cotenant.scheduler import daemonsets


def daemon_set(name: str, *tolerations: dict[str, Any]) -> dict[str, Any]:
    template = {"spec": {"tolerations": list(tolerations)}} if tolerations else {"spec": {}}
    return {"metadata": {"namespace": "kube-system", "name": name}, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "cotenant.io/interference", "operator": "Exists"}, True),
        ({"key": "cotenant.io/interference", "value": "excluded"}, True),
        ({"key": "cotenant.io/interference", "value": "other"}, False),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, False),
    ],
)
def test_what_covers_our_taint(toleration: dict[str, Any], covers: bool) -> None:
    assert daemonsets.tolerates([toleration]) == covers


async def test_those_without_a_toleration_are_listed(api: ApiServer, client: Client) -> None:
    for item in (daemon_set("logs"), daemon_set("proxy", {"operator": "Exists"}), daemon_set("agent", {"key": "x"})):
        api.put("apis/apps/v1/daemonsets", item["metadata"]["name"], **item)
    assert await daemonsets.list_kept_out(client) == ["kube-system/agent", "kube-system/logs"]
