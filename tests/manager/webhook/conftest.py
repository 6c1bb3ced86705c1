import pytest

from cotenant.manager.webhook import registering, server, settings


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates and configurations are looked at without long waits."""
    monkeypatch.setattr(registering, "SOON_SECONDS", 0.01)
    monkeypatch.setattr(settings, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(server, "READY_SECONDS", 0.01)
