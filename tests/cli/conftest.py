import pathlib
from collections.abc import Callable

import pytest

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: nobody}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: nobody, user: {}}]
"""
NOBODY_LISTENS = 1


@pytest.fixture
def kubeconfig_of(tmp_path: pathlib.Path) -> Callable[[int], pathlib.Path]:
    """What writes the file for an API server on a port of this machine."""
    path = tmp_path / "kubeconfig"

    def write(port: int) -> pathlib.Path:
        path.write_text(KUBECONFIG % port)
        return path

    return write


@pytest.fixture
def kubeconfig(kubeconfig_of: Callable[[int], pathlib.Path]) -> pathlib.Path:
    """A cluster whose API server is away."""
    return kubeconfig_of(NOBODY_LISTENS)
