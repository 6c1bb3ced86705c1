from tests.kube.conftest import api, client

__all__ = ["api", "client"]
