import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from cotenant.api import exposition
from cotenant.api.exposition import BadExposition, BadSelector, Selector
from cotenant.api.v1 import exposition_pb2 as wire
from cotenant.units.quantile import Classic, Native

TEXT = "text/plain; version=0.0.4"
INF = math.inf


def exposed() -> CollectorRegistry:
    registry = CollectorRegistry()
    seconds = Histogram("shop_seconds", "x", ["path", "code"], buckets=(0.1, 1.0), registry=registry)
    Histogram("shop_seconds_other", "x", buckets=(0.1,), registry=registry).observe(7)
    for path, code, value in [("/a", "200", 0.05), ("/a", "200", 0.5), ("/a", "500", 5), ('/"\\\n', "200", 0.05)]:
        seconds.labels(path, code).observe(value)
    return registry


@pytest.mark.parametrize("form", ["text", "openmetrics"])
def test_text_of_the_reference_client_is_read_series_by_series(form: str) -> None:
    if form == "text":
        body, kind = generate_latest(exposed()), TEXT
    else:
        body, kind = openmetrics.generate_latest(exposed()), openmetrics.CONTENT_TYPE_LATEST
    found = exposition.read(body, kind, Selector.parse("shop_seconds"))
    assert found == {
        (("code", "200"), ("path", "/a")): Classic((0.1, 1.0, INF), (1, 2, 2)),
        (("code", "500"), ("path", "/a")): Classic((0.1, 1.0, INF), (0, 0, 1)),
        (("code", "200"), ("path", '/"\\\n')): Classic((0.1, 1.0, INF), (1, 1, 1)),
    }
    chosen = exposition.read(body, kind, Selector.parse('shop_seconds_bucket{path="/a",code!="500"}'))
    assert list(chosen) == [(("code", "200"), ("path", "/a"))]


def test_exemplars_timestamps_and_spaces_do_not_disturb() -> None:
    body = b"""# HELP s x
# TYPE s histogram
s_bucket{le="0.5"} 3 1700000000000 # {trace="a b}"} 0.4 1700000000
s_bucket{ le = "+Inf" , } 4
s_sum 3
s_count 4
"""
    assert exposition.read(body, TEXT, Selector.parse("s")) == {(): Classic((0.5, INF), (3, 4))}


def test_a_native_histogram_in_text() -> None:
    body = (
        b'n{a="b"} {count:24,sum:100,schema:0,zero_threshold:0.001,zero_count:4,positive_spans:[0:2,1:2],'
        b"negative_spans:[0:2,1:2],positive_deltas:[2,1,-3,3],negative_deltas:[2,1,-2,3]}\n"
        b"m {count:5,sum:1,schema:3,zero_threshold:0,zero_count:0,positive_spans:[-2:2],positive_buckets:[2,3]}\n"
    )
    found = exposition.read(body, TEXT, Selector.parse("n"))
    sides = {0: 2.0, 1: 3.0, 4: 3.0}, {0: 2.0, 1: 3.0, 3: 1.0, 4: 4.0}
    assert found == {(("a", "b"),): Native(0, 24, sides[0], 4, 0.001, sides[1])}
    assert exposition.read(body, TEXT, Selector.parse("m")) == {(): Native(3, 5, {-2: 2, -1: 3})}


def delimited(*families: wire.MetricFamily) -> bytes:
    body = b""
    for family in families:
        data = family.SerializeToString()
        length, prefix = len(data), b""
        while True:
            prefix += bytes([(length & 0x7F) | (0x80 if length > 0x7F else 0)])
            length >>= 7
            if not length:
                break
        body += prefix + data
    return body


def test_protobuf_gives_the_native_histogram_where_there_is_one() -> None:
    both = wire.ExposedHistogram(
        sample_count=10,
        schema=2,
        zero_threshold=0.001,
        zero_count=1,
        positive_span=[wire.BucketSpan(offset=-3, length=2), wire.BucketSpan(offset=1, length=1)],
        positive_delta=[4, -2, 1],
        bucket=[wire.Bucket(cumulative_count=10, upper_bound=INF)],
    )
    only_classic = wire.ExposedHistogram(
        sample_count=4, bucket=[wire.Bucket(cumulative_count=3, upper_bound=0.5)]
    )  # the form leaves +Inf out
    family = wire.MetricFamily(
        name="s",
        metric=[
            wire.Metric(label=[wire.LabelPair(name="a", value="1")], histogram=both),
            wire.Metric(label=[wire.LabelPair(name="a", value="2")], histogram=only_classic),
            wire.Metric(label=[wire.LabelPair(name="a", value="3")]),
        ],
    )
    body = delimited(wire.MetricFamily(name="before" * 100), family)
    found = exposition.read(body, exposition.PROTOBUF_TYPE + ";encoding=delimited", Selector.parse("s"))
    assert found == {
        (("a", "1"),): Native(2, 10, {-3: 4, -2: 2, 0: 3}, 1, 0.001),
        (("a", "2"),): Classic((0.5, INF), (3, 4)),
    }
    for cut in (1, len(body) // 2, len(body) - 1):
        with pytest.raises(BadExposition):
            exposition.read(body[:cut], exposition.PROTOBUF_TYPE, Selector.parse("s"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"s_bucket 3\n",
        b's_bucket{le="0.5"} 3\n',
        b's_bucket{le="x"} 3\ns_bucket{le="+Inf"} 3\n',
        b's_bucket{le="+Inf"\n',
        b's_bucket{le="1"} -3\ns_bucket{le="+Inf"} 3\n',
        b's{quantile="0.99"} 3\n',
        b"s {count:1,schema:0,positive_spans:[0:9],positive_deltas:[1]}\n",
        b"s {count:1,schema:x}\n",
    ],
)
def test_what_is_no_histogram_is_refused(body: bytes) -> None:
    with pytest.raises(BadExposition, match="s"):
        exposition.read(body, TEXT, Selector.parse("s"))


def test_too_many_series_are_refused() -> None:
    lines = [f's_bucket{{a="{n}",le="{le}"}} 1' for n in range(1001) for le in ("1", "+Inf")]
    with pytest.raises(BadExposition, match="1000 label sets"):
        exposition.read("\n".join(lines).encode(), TEXT, Selector.parse("s"))


@settings(max_examples=60)
@given(st.binary(max_size=200), st.sampled_from([TEXT, exposition.PROTOBUF_TYPE]))
def test_any_bytes_are_read_or_refused(body: bytes, kind: str) -> None:
    try:
        exposition.read(b"s_bucket" + body, kind, Selector.parse("s"))
    except BadExposition:
        return


@pytest.mark.parametrize("text", ["", "9x", "s{", "s{a}", 's{a=~"b"}', 's{a="b"', "s t", "s{a='b'}", "s" * 2000])
def test_a_selector_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadSelector, match="write METRIC"):
        Selector.parse(text)


def test_selectors() -> None:
    selector = Selector.parse(' s_bucket { a="x\\"y", b != "" } ')
    assert selector == Selector("s", (("a", 'x"y'),), (("b", ""),))
    assert selector.matches({"a": 'x"y', "b": "z"})
    assert not selector.matches({"a": 'x"y'})
