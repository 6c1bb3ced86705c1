"""Thresholds from hours that a real Prometheus holds: filled by its own tool, as scraped every 15 s."""

import json
import pathlib
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.detect.test_recommendation import TODAY, Trace
from tests.prometheus import servers
from tests.prometheus.servers import Prometheus, binaries

from cotenant.api import timestamp
from cotenant.detect import rendering
from cotenant.web import sample_metrics

pytestmark = pytest.mark.real

SLOW_SECONDS, USUAL_SECONDS = 0.2, 0.02
NODES = ("a-1", "b-1")


def exposition(trace: Trace, until: float) -> Iterator[str]:
    """Yield what was scraped of two nodes alike, and of a service on the first, with its times, ended by ``until``."""
    points: dict[str, list[tuple[float, str, float]]] = {}
    samples = list(trace.samples())
    shift = until - (timestamp.parse(samples[-1].time) or 0.0)
    slow = trace.truth.of("")
    for taken in samples:
        at = timestamp.parse(taken.time) or 0.0
        for family in sample_metrics.of_sample(taken, []):
            if family.type != "gauge":
                continue
            for one in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in one.labels.items())
                points.setdefault(one.name, []).append((at + shift, labels, one.value))
        hurt = any(episode.start <= at <= episode.end for episode in slow)
        value = SLOW_SECONDS if hurt else USUAL_SECONDS
        points.setdefault("cotenant_service_latency_seconds", []).append(
            (at + shift, 'service="shop",quantile="0.99"', value)
        )
    for name, found in points.items():
        yield f"# TYPE {name} gauge"
        for node in NODES:
            target = f'instance="10.0.0.{NODES.index(node)}:7072",node="{node}"'
            series = dict.fromkeys(labels for _, labels, _ in found)
            for labels in series:
                text = ",".join(filter(None, (labels, target)))
                yield from (f"{name}{{{text}}} {value} {at:.3f}" for at, own, value in found if own == labels)
    yield "# EOF"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that holds sixteen hours of two nodes, and scrapes nothing."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "scraped").write_text("\n".join(exposition(Trace(), time.time() - 60)) + "\n")
    try:
        tool = binaries.promtool()
    except binaries.NotToBeHad as error:
        pytest.skip(str(error))
    command = [str(tool), "tsdb", "create-blocks-from", "openmetrics", f"{folder}/scraped", f"{folder}/data"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = Prometheus(folder, {"scrape_configs": []}, "--query.max-samples=20000")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def today(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("today") / "today.yaml"
    path.write_text(rendering.text_of(TODAY))
    return path


def recommended(prometheus: Prometheus, today: pathlib.Path, *more: str) -> dict[str, Any]:
    words = ["recommend", "--from=prometheus", f"--url={prometheus.url}", f"--rules={today}", "--hours=17"]
    done = servers.run(*words, "--false-per-day=24", "--json", *more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_recommends_what_the_recorded_samples_would_have(filled: Prometheus, today: pathlib.Path) -> None:
    found = recommended(filled, today)
    assert found["nodes"] == 2
    (changed,) = (one for one in found["changes"] if one["what"] == "changed")
    assert changed["signal"] == "psi.io_some_ratio"
    # Stall is 0.3 in calm, for which today's rules trigger, and 0.7 while the service is slow.
    assert 0.35 < changed["recommended"]["threshold"] < 0.68, changed
    assert found["today"]["calm_triggered_share"] > 0.9
    assert found["expected"]["calm_triggered_share"] < 0.05
    assert found["expected"]["missed_share"] == 0
    assert found["expected"]["slow_episodes"] > 5


def test_matchers_choose_a_class_of_nodes(filled: Prometheus, today: pathlib.Path) -> None:
    assert recommended(filled, today, '--matchers=node=~"a-.*"')["nodes"] == 1
    words = ["recommend", "--from=prometheus", f"--url={filled.url}", f"--rules={today}", "--hours=17"]
    done = servers.run(*words, '--matchers=node="c"')
    assert (done.returncode, done.stdout) == (1, "")
    assert 'of the last 17 h with {node="c"}: does it scrape nodes?' in done.stderr
    done = servers.run(*words, "--matchers=node=")
    assert (done.returncode, done.stdout) == (2, "")
    assert "400 Bad Request" in done.stderr
    assert "look at --matchers" in done.stderr
