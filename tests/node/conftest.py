from tests.act.conftest import machine
from tests.kube.conftest import api, client

__all__ = ["api", "client", "machine"]
