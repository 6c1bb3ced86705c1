import pathlib

import pytest

from cotenant.latency import configuration
from cotenant.latency.errors import BadSource

GOOD = """
services:
- name: shop
  group: system.slice/nginx.service
  log: {path: /var/log/nginx/access.log, pattern: '{seconds}$'}
- name: pay
  scrape: {url: 'http://127.0.0.1:8080/metrics', metric: 'http_request_duration_seconds{handler="/pay"}'}
- name: search
  prometheus: {url: 'http://127.0.0.1:9090', query: 'sum by (le) (rate(x_bucket[2m]))', windowSeconds: 120}
"""


def test_a_file_of_services(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "latency.yaml"
    path.write_text(GOOD)
    shop, pay, search = configuration.load(path)
    assert shop.log is not None
    assert shop.group == "system.slice/nginx.service"
    assert pay.scrape is not None
    assert search.prometheus is not None
    assert search.prometheus.window_seconds == 120


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "object"),
        ("[", "expected"),
        ("services: [{name: a}]", "service a: give one of log, scrape, prometheus"),
        ("services: [{name: a, log: {path: /x, pattern: x}}]", "service a: pattern"),
        ("services: [{name: a, log: {path: /x, pattern: '{seconds}', unit: s}}]", "unit"),
        ("services: [{name: '', log: {path: /x, pattern: '{seconds}'}}]", "a name of 1"),
        ("services: [{name: a, scrape: {url: x, metric: y}}]", "write an address"),
        ("services: [{name: a, scrape: {url: 'http://x/', metric: 'y{'}}]", "write METRIC"),
        ("services: [{name: a, prometheus: {url: 'http://x/'}}]", "give query, or"),
        ("services: [{name: a, prometheus: {url: 'http://x/', query: q, p99: q}}]", "give query, or"),
        ("services: [{name: a, prometheus: {url: 'http://x/', query: q, windowSeconds: 0}}]", "windowSeconds"),
        (
            "services: [{name: a, prometheus: {url: 'http://x/', query: q, tokenFile: t, basicAuthFile: b}}]",
            "service a: give tokenFile or basicAuthFile",
        ),
        ("services: [{name: a, scrape: {url: 'http://u:p@x/', metric: y}}]", r"basicAuthFile"),
        ("services: [" + ", ".join(["{name: a, log: {path: /x, pattern: '{seconds}'}}"] * 2) + "]", "named twice"),
        ("services: [" + ", ".join(["{name: a}"] * 17) + "]", "at most 16"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: pathlib.Path, text: str, said: str) -> None:
    path = tmp_path / "latency.yaml"
    path.write_text(text)
    with pytest.raises(BadSource, match=said) as caught:
        configuration.load(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: pathlib.Path) -> None:
    with pytest.raises(BadSource, match="No such file"):
        configuration.load(tmp_path / "none.yaml")


def test_the_short_form_of_a_log() -> None:
    service = configuration.of_log("shop=/var/log/a.log:rt={seconds} x:y")
    assert service.name == "shop"
    assert service.log == configuration.Log(path="/var/log/a.log", pattern="rt={seconds} x:y")
    for text in ("", "shop", "shop=/x", "=/x:{seconds}", "shop=/x:", "shop=/x:y"):
        with pytest.raises(BadSource):
            configuration.of_log(text)
