import json
import pathlib
from collections.abc import Iterator
from typing import ClassVar

import pytest
from tests.latency.conftest import Server

from cotenant.detect import errors
from cotenant.latency.errors import Refused, TooLarge, Unreadable
from cotenant.latency.prometheus import Server as Prometheus
from cotenant.latency.prometheus import Stretch
from cotenant.local import database, history, past
from cotenant.model import sample, series
from cotenant.model.evaluation import Evaluation

START_MS = 1_800_000_000_000


def test_a_sample_made_of_its_numbers_has_them_again() -> None:
    first = sample.decode(
        b'{"node":"n1","time":"2027-01-15T08:00:00.000Z","period_s":1.0,"psi":{"io_some_ratio":0.5},'
        b'"block":{"completions":12,"p99_usec":900.0},"memory":{"oom_kills":1},'
        b'"online":{"psi":{"io_some_ratio":0.25},"block_p99_usec":5.0}}'
    )
    values = series.values_of(first, Evaluation(node="n1", time=first.time))
    again = series.sample_of({**values, "latency.shop.p99_usec": 5.0, "level": 0.5}, "n1", 1_800_000_000.0, 1.0)
    assert again.time.startswith("2027-01-15T08:00:00.000")
    assert series.values_of(again, Evaluation(node="n1", time=again.time)) == values
    assert series.sample_of({"block.completions": 12.4}, "n1", 0.0, 1.0).block.completions == 12


def test_one_number_for_ten_seconds_becomes_as_many_samples_as_a_window_needs() -> None:
    made = list(past.expanded("n1", [(100.0, 10.0, {"psi.io_some_ratio": 0.5})], 10.0))
    assert [one.uptime_s for one in made] == [92.5, 95.0, 97.5, 100.0]
    assert {one.period_s for one in made} == {2.5}
    assert {one.psi.io_some_ratio for one in made} == {0.5}
    assert len(list(past.expanded("n1", [(100.0, 1.0, {})], 10.0))) == 1
    assert len(list(past.expanded("n1", [(100.0, 15.0, {})], 60.0))) == 1


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> pathlib.Path:
    db = database.Database(tmp_path / history.FILE_NAME)
    for block in range(5):
        points = [
            (START_MS + (block * 1000 + n) * 1000, {"psi.io_some_ratio": 0.25, "latency.shop.p99_usec": 20_000.0})
            for n in range(1000)
        ]
        db.add(points, [])
        db.tidy(points[-1][0])
    db.close()
    return tmp_path


def test_history_is_read_by_ten_seconds_and_then_by_the_second(kept: pathlib.Path) -> None:
    recorded = past.of_history(kept, 10.0)
    times = [one.uptime_s or 0.0 for one in recorded.samples()]
    assert times == sorted(set(times))
    assert sum(one.period_s or 0.0 for one in recorded.samples()) == pytest.approx(5000, abs=20)
    assert sum(one.period_s == 1.0 for one in recorded.samples()) == 3600
    ((node, service),) = recorded.services
    assert (node, service) == (past.HISTORY_NODE, "shop")
    assert recorded.services[node, service][0][1] == 0.02
    truth = recorded.truth(0.01)
    assert truth is not None
    assert truth.count == 1


def test_no_history_is_told_with_a_remedy(tmp_path: pathlib.Path) -> None:
    with pytest.raises(past.BadPast, match="--data"):
        past.of_history(tmp_path, 10.0)


def test_a_file_of_latencies(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "latency.jsonl"
    path.write_text(
        '{"time":"2027-01-15T08:00:05Z","p99_seconds":0.2,"service":"shop"}\n\n'
        '{"time":"2027-01-15T08:00:00Z","p99_seconds":0.1,"service":"shop"}\n'
        '{"time":"2027-01-15T08:00:00Z","p99_seconds":0.3,"node":"n2"}\n'
    )
    found = past.read_latency(path)
    assert found == {
        ("", "shop"): [(1_800_000_000.0, 0.1), (1_800_000_005.0, 0.2)],
        ("n2", ""): [(1_800_000_000.0, 0.3)],
    }


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"time":"x","p99_seconds":1}',
        '{"time":"2027-01-15T08:00:05Z"}',
        '{"time":"2027-01-15T08:00:05Z","p99_seconds":-1}',
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: pathlib.Path, line: str) -> None:
    path = tmp_path / "latency.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(past.BadPast, match=r"latency\.jsonl:1:"):
        past.read_latency(path)
    with pytest.raises(past.BadPast, match="No such file"):
        past.read_latency(tmp_path / "none")


def test_samples_without_an_offset_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('{"node":"n1","time":"2027-01-15T08:00:05"}\n')
    with pytest.raises(errors.BadSamples, match=r"samples\.jsonl:1"):
        list(past.of_files([path]).samples())


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def test_prometheus_gives_each_instance_its_numbers_in_our_units(server: Server) -> None:
    def matrix(metric: dict[str, str], *values: str) -> bytes:
        points = [[1000.0 + 15 * n, value] for n, value in enumerate(values)]
        result = [{"metric": metric, "values": points}]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()

    nothing = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()
    answers = {
        "cotenant_psi_io_some_ratio": matrix({"instance": "h1"}, "0.5", "NaN"),
        "cotenant_block_p99_seconds": matrix({"instance": "h1"}, "0.02", "0.03"),
        "cotenant_service_latency_seconds": matrix({"instance": "h1", "service": "shop"}, "0.2"),
    }

    class Asking(Prometheus):
        def _ask(self, path: str, parameters: object) -> object:
            query = parameters["query"].partition("{")[0]  # type: ignore[index]
            server.answers["/api/v1/query_range"] = (200, "application/json", answers.get(query, nothing))
            return super()._ask(path, parameters)  # type: ignore[arg-type]

    archive = past.Archive(Asking(server.url))
    recorded = archive.read(["psi.io_some_ratio", "block.p99_usec"], 1100.0, 200.0, 60.0)
    first, second = recorded.samples()
    assert (first.node, first.psi.io_some_ratio, first.block.p99_usec) == ("h1", 0.5, pytest.approx(20_000))
    assert (second.psi.io_some_ratio, second.block.p99_usec) == (None, pytest.approx(30_000))
    assert recorded.services == {("h1", "shop"): [(1000.0, 0.2)]}


class Scripted(Prometheus):
    """A server that gives one node's numbers, or raises what it is told to first; ``asked`` are lengths of time."""

    raised: ClassVar[list[Unreadable]] = []
    asked: ClassVar[list[tuple[str, float]]] = []
    labels: ClassVar = {"node": "n1", "instance": "10.0.0.1:7072"}

    def range(self, expression: str, start: float, end: float, step_seconds: float) -> list[Stretch]:
        self.asked.append((expression, round(end - start)))
        if self.raised:
            raise self.raised.pop(0)
        service = expression.startswith("cotenant_service")
        labels = {"instance": "manager", "service": "shop"} if service else self.labels
        return [Stretch(labels, [(start, 0.5)])]


def scripted(*raised: Unreadable, matchers: str = "") -> tuple[past.Archive, Scripted, list[float]]:
    """Return an archive, its server, and for how long it has waited."""
    server, waited = Scripted("http://x"), list[float]()
    Scripted.raised, Scripted.asked = list(raised), []
    return past.Archive(server, matchers, waited.append), server, waited


def test_a_node_has_the_name_that_its_target_says_and_a_manager_s_latency_is_no_node_s() -> None:
    archive, server, _ = scripted(matchers='job="a"')
    recorded = archive.read(["psi.io_some_ratio"], 1100.0, 200.0, 60.0)
    assert {one.node for one in recorded.samples()} == {"n1"}
    assert recorded.services == {}
    assert recorded.truth(None) is None
    assert [expression for expression, _ in server.asked] == [
        'cotenant_psi_io_some_ratio{job="a"}',
        'cotenant_block_completions{job="a"}',
        'cotenant_service_latency_seconds{quantile="0.99", job="a"}',
    ]


def test_a_server_that_is_busy_is_asked_again_and_one_that_refuses_is_not() -> None:
    archive, _, waited = scripted(Refused("busy", 503), Refused("busy", 429, 9.0))
    assert list(archive.read(["psi.io_some_ratio"], 1100.0, 200.0, 60.0).samples())
    assert waited == [1.0, 9.0]
    for error in (Refused("no", 401), Refused("busy", 429, 3600.0)):
        archive, _, waited = scripted(error)
        with pytest.raises(Refused):
            archive.read(["psi.io_some_ratio"], 1100.0, 200.0, 60.0)
        assert waited == []
    archive, _, waited = scripted(*[Refused("busy", 503)] * 4)
    with pytest.raises(Refused, match="busy"):
        archive.read(["psi.io_some_ratio"], 1100.0, 200.0, 60.0)
    assert len(waited) == 3


def test_what_is_too_large_is_asked_for_in_parts() -> None:
    archive, server, _ = scripted(TooLarge("large"), TooLarge("large"))
    archive.read(["psi.io_some_ratio"], 8000.0, 7200.0, 60.0)
    assert [seconds for _, seconds in server.asked[:6]] == [7192, 3592, *[1792] * 4]
    archive, _, _ = scripted(*[TooLarge("large")] * 9)
    with pytest.raises(TooLarge, match="large; ask for fewer nodes at once with --matchers"):
        archive.read(["psi.io_some_ratio"], 8000.0, 7200.0, 60.0)


def test_prometheus_that_does_not_answer_is_an_error(server: Server) -> None:
    with pytest.raises(Unreadable, match="404"):
        past.Archive(Prometheus(server.url)).read(["psi.io_some_ratio"], 1100.0, 200.0, 60.0)
