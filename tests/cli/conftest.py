import pathlib

import pytest

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: away
contexts: [{name: away, context: {cluster: away, user: nobody}}]
clusters: [{name: away, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
"""


@pytest.fixture
def kubeconfig(tmp_path: pathlib.Path) -> pathlib.Path:
    """A cluster whose API server is away."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    return path
