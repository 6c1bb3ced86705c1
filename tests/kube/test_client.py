import pathlib
import socket
from typing import Any

import msgspec
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from starlette.responses import HTMLResponse

from cotenant.kube import errors
from cotenant.kube.client import LEASES, NODES, REPORTS, Client
from cotenant.kube.configuration import load_configuration

AT = "apis/cotenant.io/v1alpha1/nodeinterferencereports"


def test_paths() -> None:
    assert NODES.path("n1", namespace="ignored") == "api/v1/nodes/n1"
    assert LEASES.path("x", "ns") == "apis/coordination.k8s.io/v1/namespaces/ns/leases/x"
    assert REPORTS.path("n1", subresource="status") == f"{AT}/n1/status"


async def test_apply_names_its_manager_and_sends_what_it_owns(api: Any, client: Client) -> None:
    await client.apply(REPORTS, "n1", {"spec": {"nodeName": "n1"}}, "cotenant-analyzer", force=True)
    assert api.requests[-1] == ("PATCH", f"{AT}/n1", {"fieldManager": "cotenant-analyzer", "force": "true"})
    assert api.bodies[-1] == {"spec": {"nodeName": "n1"}}


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (401, "Unauthorized", errors.Forbidden),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Expired),
        (429, "TooManyRequests", errors.Throttled),
        (500, "InternalError", errors.ApiError),
    ],
)
async def test_refusals_by_kind(api: Any, client: Client, code: int, reason: str, kind: type[errors.ApiError]) -> None:
    api.fail("GET", {"code": code, "reason": reason, "message": "two\nlines"}, {"Retry-After": "3"})
    with pytest.raises(kind) as caught:
        await client.get(NODES, "n1", dict)
    assert type(caught.value) is kind
    assert caught.value.code == code
    assert caught.value.retry_after_seconds == 3
    assert str(caught.value) == f"GET api/v1/nodes/n1: {code} two lines"


def write_kubeconfig(path: pathlib.Path, server: str) -> pathlib.Path:
    path.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: x
contexts: [{{name: x, context: {{cluster: x, user: x}}}}]
clusters: [{{name: x, cluster: {{server: "{server}"}}}}]
users: [{{name: x, user: {{}}}}]
"""
    )
    return path


async def test_no_answer_is_unreachable(client: Client, api: Any, tmp_path: pathlib.Path) -> None:
    config = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    async with Client(load_configuration(config)) as nowhere:
        with pytest.raises(errors.Unreachable, match=r"^GET http://127\.0\.0\.1:1/api/v1/nodes/n1: "):
            await nowhere.get(NODES, "n1", dict)


async def test_an_answer_that_is_something_else_is_an_error_like_any_other(api: Any, client: Client) -> None:
    api.failures.append(("GET", HTMLResponse("<html>Log in</html>")))
    with pytest.raises(errors.Unreadable, match=r"^GET api/v1/nodes/n1: the answer is not what was asked for: "):
        await client.get(NODES, "n1", dict)


async def test_a_token_that_cannot_be_read_is_an_error_like_any_other(api: Any, tmp_path: pathlib.Path) -> None:
    user = User(token_file=str(tmp_path / "being-replaced"))
    config = KubeConfig.from_one(cluster=Cluster(server=api.url, insecure=True), user=user, namespace="tests").get()
    assert config is not None
    async with Client(config) as client:
        with pytest.raises(errors.Unreachable, match=r"no credentials: Token file .* not found"):
            await client.get(NODES, "n1", dict)


async def test_a_server_that_stays_silent_is_said_to_be_slow(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{silent.getsockname()[1]}")
        async with Client(load_configuration(config), timeout_seconds=0.05) as asking:
            with pytest.raises(errors.Unreachable, match=r"/api/v1/nodes/n1: no answer in time \(ReadTimeout\)"):
                await asking.get(NODES, "n1", dict)


@pytest.mark.parametrize("content", [None, "", "[]", "contexts: 3", "{", "a: " + "[" * 5000])
def test_a_kubeconfig_that_is_none_is_said_in_one_line(tmp_path: pathlib.Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(errors.BadConfiguration) as caught:
        load_configuration(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


async def test_a_line_larger_than_any_chunk_arrives_whole(api: Any, client: Client) -> None:
    api.first_events.append([{"type": "ADDED", "object": {"metadata": {"name": "x" * 300_000}}}])
    async for event in client.watch(NODES, "1", 5):
        assert len(msgspec.json.decode(event.object)["metadata"]["name"]) == 300_000
        break
