import pathlib

from cotenant.cli import cluster
from cotenant.kube import client


def test_a_command_waits_longer_for_an_answer_than_a_program_that_asks_again(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}], "
        "clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: x, user: {}}]}"
    )

    async def allowed(asking: client.Client) -> tuple[float | None, float | None]:
        return asking._http.timeout.read, asking._http.timeout.connect

    read, connect = cluster.ask(config, "test", allowed)
    assert read == cluster.PATIENCE_SECONDS > client.TIMEOUT_SECONDS
    assert connect == client.TIMEOUT_SECONDS, "where nothing listens, a person is told soon"
