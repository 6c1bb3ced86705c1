import json
import pathlib
import urllib.request

import pytest
from tests import process
from tests.waiting import PATIENCE_SECONDS

from cotenant.cli import app


@pytest.mark.slow
def test_it_answers_while_the_cluster_is_away_and_ends_on_sigterm(kubeconfig: pathlib.Path) -> None:
    with process.running("manager", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0", "--json") as line:
        url = json.loads(line)["url"]
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_SECONDS) as answer:
            text = answer.read().decode()
            assert "cotenant_manager_leading 0.0" in text
            assert "process_resident_memory_bytes" in text
        with urllib.request.urlopen(f"{url}/healthz", timeout=PATIENCE_SECONDS) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("place", ["config", "a/b/c", "/config", "koordinator-system/"])
def test_a_place_is_a_namespace_and_a_name(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["manager", "--slo-config", place]) == 2
    assert "give NAMESPACE/NAME" in capsys.readouterr().err
