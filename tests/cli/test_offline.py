import json

import msgspec
import pytest

from cotenant.cli import offline
from cotenant.model.ledger import Account, Ledger

LEDGER = Ledger(
    epoch="e",
    since=1_800_000_000.0,
    accounts={"batch": Account(asked_core_seconds=7200, delivered_core_seconds=3600, suppressed_core_seconds=3600)},
)


def get(url: str) -> bytes:
    assert url == "http://host/api/v1/ledger"
    return msgspec.json.encode(LEDGER)


def test_one_account_in_sentences_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    offline.show("batch", "http://host/", get, as_json=False)
    assert "batch asked for 2.0 core-hours and got 1.0 core-hours (50 %)" in capsys.readouterr().out
    offline.show("batch", "http://host", get, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["account"]["suppressed_core_seconds"] == 3600
    assert len(said["sentences"]) == 2


def test_all_accounts(capsys: pytest.CaptureFixture[str]) -> None:
    offline.show(None, "http://host", get, as_json=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert " ".join(last.split()) == "batch 2.000 1.000 50 % 1.000 0 –"
    offline.show(None, "http://host", get, as_json=True)
    assert json.loads(capsys.readouterr().out)["accounts"].keys() == {"batch"}


def test_who_is_not_there_and_what_is_no_ledger() -> None:
    with pytest.raises(offline.NoLedger, match="'web' was seen; there is batch"):
        offline.show("web", "http://host", get, as_json=False)
    with pytest.raises(offline.NoLedger, match="not a ledger"):
        offline.show("web", "http://host", lambda _: b"<html>", as_json=False)
