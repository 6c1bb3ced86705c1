import json
import math
from typing import Any

import pytest
from tests.latency.conftest import Server

from cotenant.latency import prometheus
from cotenant.latency.errors import NothingFound, Refused, TooLarge, Unreadable
from cotenant.latency.prometheus import Server as Prometheus
from cotenant.units.quantile import Classic, Native

INF = math.inf
DATA = {"resultType": "vector", "result": [{"metric": {}, "value": [1.0, "0.25"]}]}


def answering(server: Server, kind: str, result: Any, path: str = "query") -> Prometheus:
    body = json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()
    server.answers[f"/prom/api/v1/{path}"] = (200, "application/json", body)
    return Prometheus(f"{server.url}/prom/")


def test_buckets_become_histograms_by_their_other_labels(server: Server) -> None:
    rows = [("a", "0.1", "1.5"), ("a", "+Inf", "2"), ("b", "0.1", "NaN"), ("b", "+Inf", "NaN")]
    found = [{"metric": {"node": node, "le": le}, "value": [1.0, value]} for node, le, value in rows]
    asked = answering(server, "vector", found).instant("sum by (le, node) (rate(x_bucket[1m]))")
    assert prometheus.histograms(asked) == {(("node", "a"),): Classic((0.1, INF), (1.5, 2.0))}
    assert "query=sum+by+%28le%2C+node%29" in server.seen[0][0]


def test_a_native_histogram_is_recognised_by_its_bounds(server: Server) -> None:
    base = 2 ** (2**-3)
    listed = [
        [3, "-0.001", "0.001", "2"],
        *([0, f"{base**i:.12g}", f"{base ** (i + 1):.12g}", "3"] for i in (-10, -3, 7)),
    ]
    result = [{"metric": {}, "histogram": [1.0, {"count": "11", "sum": "1", "buckets": listed}]}]
    asked = answering(server, "vector", result).instant("x")
    assert prometheus.histograms(asked) == {(): Native(3, 11, {-9: 3, -2: 3, 8: 3}, 2, 0.001)}


def test_custom_buckets_are_a_classic_histogram(server: Server) -> None:
    listed = [[0, "-Inf", "0.1", "4"], [0, "0.1", "0.25", "5"], [0, "0.25", "+Inf", "1"]]
    result = [{"metric": {}, "histogram": [1.0, {"count": "10", "sum": "1", "buckets": listed}]}]
    asked = answering(server, "vector", result).instant("x")
    assert prometheus.histograms(asked) == {(): Classic((0.1, 0.25, INF), (4, 9, 10))}


def test_numbers_of_one_quantile(server: Server) -> None:
    one = answering(server, "vector", [{"metric": {}, "value": [1.0, "0.25"]}])
    assert prometheus.number_of(one.instant("x")) == 0.25
    assert prometheus.number_of(answering(server, "scalar", [1.0, "0.5"]).instant("x")) == 0.5
    with pytest.raises(NothingFound, match="no series"):
        prometheus.number_of(answering(server, "vector", []).instant("x"))
    nothing = answering(server, "vector", [{"metric": {}, "value": [1.0, "NaN"]}])
    assert prometheus.number_of(nothing.instant("x")) is None
    two = answering(server, "vector", [{"metric": {"a": n}, "value": [1.0, "1"]} for n in "12"])
    with pytest.raises(Unreadable, match="2 series"):
        prometheus.number_of(two.instant("x"))
    for no_latency in ("+Inf", "-Inf", "-0.5"):
        with pytest.raises(Unreadable, match="no latency"):
            prometheus.number_of(answering(server, "vector", [{"metric": {}, "value": [1.0, no_latency]}]).instant("x"))


def test_numbers_over_time(server: Server) -> None:
    values = [[1, "0.5"], [2, "NaN"], [3, "0.75"], [4, "+Inf"], [5, "-Inf"]]
    result = [{"metric": {"instance": "h1"}, "values": values}]
    (stretch,) = answering(server, "matrix", result, "query_range").range("x", 0, 10, 1)
    assert stretch.labels == {"instance": "h1"}
    assert stretch.points == [(1.0, 0.5), (3.0, 0.75)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "not an answer"),
        (b'{"status":"error","error":"bad query"}', "bad query"),
        (b'{"status":"success","data":{"resultType":"string","result":[1,"x"]}}', "gives a string"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"x"]}]}}', "not a number"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"histogram":[1,{}]}]}}', "can be read"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[{"values":[]}]}}', "matrix"),
    ],
)
def test_an_answer_that_is_none_is_refused(server: Server, body: bytes, said: str) -> None:
    server.answers["/api/v1/query"] = (200, "application/json", body)
    with pytest.raises(Unreadable, match=said):
        Prometheus(server.url).instant("x")


def test_an_answer_that_may_be_a_part_is_refused_and_information_is_none(server: Server) -> None:
    def warned(*warnings: str) -> Prometheus:
        answer = {"status": "success", "warnings": warnings, "infos": ["PromQL info: x"], "data": DATA}
        server.answers["/api/v1/query"] = (200, "application/json", json.dumps(answer).encode())
        return Prometheus(server.url)

    assert warned("PromQL info: metric might not be a counter").instant("x")[0].value == 0.25
    with pytest.raises(Unreadable, match="may be a part only: No StoreAPIs matched"):
        warned("PromQL info: x", "No StoreAPIs matched for this query").instant("x")


def test_the_server_is_told_the_deadline(server: Server) -> None:
    server.answers["/api/v1/query"] = (
        200,
        "application/json",
        json.dumps({"status": "success", "data": DATA}).encode(),
    )
    Prometheus(server.url, timeout_seconds=10).instant("x")
    assert server.seen[0][0] == "/api/v1/query?query=x&timeout=9000ms"


@pytest.mark.parametrize(("status", "kind"), [(422, TooLarge), (400, Refused), (429, Refused), (503, Refused)])
def test_a_refusal_says_what_prometheus_says(server: Server, status: int, kind: type[Unreadable]) -> None:
    body = b'{"status":"error","errorType":"execution","error":"the reason"}'
    server.answers["/api/v1/query"] = (status, "application/json", body)
    with pytest.raises(kind, match=f"/api/v1/query: {status} [A-Za-z ]+ the reason$"):
        Prometheus(server.url).instant("x")


def test_a_query_that_forgets_the_buckets_is_told_how_to_keep_them(server: Server) -> None:
    asked = answering(server, "vector", [{"metric": {}, "value": [1.0, "0.25"]}])
    with pytest.raises(Unreadable, match=r"sum by \(le\)"):
        prometheus.histograms(asked.instant("x"))
