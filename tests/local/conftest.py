"""What a disk that stands still for a minute must not decide."""

import pytest
from tests.waiting import PATIENCE_SECONDS

from cotenant.local import history


@pytest.fixture(autouse=True)
def patient_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waits for the disk as long as it takes: what was added is stored when it has stopped."""
    monkeypatch.setattr(history, "STOP_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(history, "READ_TURN_SECONDS", PATIENCE_SECONDS)
