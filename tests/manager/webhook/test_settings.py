"""How the webhook is found, and the names that its certificate is for."""

import dataclasses

import pytest

from cotenant.manager.webhook import settings


def test_names_and_addresses() -> None:
    assert settings.address(settings.Settings(listen="0.0.0.0:9443")) == ""
    assert settings.address(settings.Settings(listen="[::1]:9443")) == "https://[::1]:9443"
    by_url = settings.Settings(listen="0.0.0.0:9443", url="https://10.0.0.7:9443/")
    assert settings.address(by_url) == "https://10.0.0.7:9443"
    assert settings.names(by_url, "ns") == (
        "cotenant-manager-webhook.ns.svc", "cotenant-manager-webhook.ns.svc.cluster.local", "10.0.0.7"
    )  # fmt: skip
    with pytest.raises(settings.BadSettings):
        settings.address(dataclasses.replace(by_url, url="http://x"))
