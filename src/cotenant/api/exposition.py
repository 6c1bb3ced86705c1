"""The histograms of one metric in what a program exposes to Prometheus: text, OpenMetrics text, or protobuf.

Only lines (or messages) of that metric are looked at closely: a page of a megabyte costs a search, not a parse. Series
stay apart by their labels, because each is a counter of its own that may appear, vanish and restart.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cotenant.api import errors
from cotenant.units.quantile import BadHistogram, Classic, Counts, Native

if TYPE_CHECKING:
    from cotenant.api.v1 import exposition_pb2 as wire

PROTOBUF_TYPE = "application/vnd.google.protobuf"
ACCEPT = (
    f"{PROTOBUF_TYPE};proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,"
    "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5"
)
"""Protobuf first: it is the only form in which every native histogram can be had."""
SERIES_LIMIT = 1000
"""Label sets of one metric in one program."""

Labels = tuple[tuple[str, str], ...]
Series = dict[Labels, Counts]

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(!?=)\s*"((?:[^"\\\n]|\\.)*)"\s*(?:,|$)')
_SELECTOR = re.compile(rf"\s*({_NAME})\s*(?:\{{(.*)\}})?\s*", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")
_NUMBER = r"[^\s,}\]]+"
_FIELD = re.compile(rf"(\w+):\s*(\[[^\]]*\]|{_NUMBER})")


class BadExposition(errors.ApiError):
    """What a program exposes cannot be read, or does not have the histogram that was asked for."""


class BadSelector(errors.ApiError):
    """A metric and its labels are not spelled as in Prometheus."""


@dataclasses.dataclass(frozen=True, slots=True)
class Selector:
    """A metric (``http_request_duration_seconds``) and what its labels must and must not be."""

    metric: str
    equal: tuple[tuple[str, str], ...] = ()
    unequal: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """Return the selector of ``name`` or ``name{label="value",other!="value"}``; ``_bucket`` at the end is dropped.

        :raises BadSelector: if it is neither.
        """
        found = _SELECTOR.fullmatch(text) if len(text) <= 1000 else None
        labels = (found and found.group(2)) or ""
        equal: list[tuple[str, str]] = []
        unequal: list[tuple[str, str]] = []
        at = 0
        while found and labels[at:].strip():
            label = _LABEL.match(labels, at)
            if label is None:
                found = None
                break
            (equal if label.group(2) == "=" else unequal).append((label.group(1), _unescaped(label.group(3))))
            at = label.end()
        if not found:
            raise BadSelector(f'{text[:100]!r}: write METRIC or METRIC{{label="value",other!="value"}}')
        return cls(found.group(1).removesuffix("_bucket"), tuple(equal), tuple(unequal))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels is meant."""
        return all(labels.get(name, "") == value for name, value in self.equal) and not any(
            labels.get(name, "") == value for name, value in self.unequal
        )


def read(body: bytes, content_type: str, selector: Selector) -> Series:
    """Return the metric's histograms by their labels; where a program gives both kinds of one, the native.

    :raises BadExposition: if there is none, there are too many, or the body is not of its content type.
    """
    binary = content_type.partition(";")[0].strip().lower() == PROTOBUF_TYPE
    try:
        found = _of_protobuf(body, selector) if binary else _of_text(body, selector)
    except BadHistogram as error:
        raise BadExposition(f"{selector.metric}: {error}") from None
    if not found:
        raise BadExposition(f"no histogram {selector.metric} with these labels; a summary's quantiles cannot be added")
    return found


def _limited(found: Mapping[Labels, object], selector: Selector) -> None:
    if len(found) >= SERIES_LIMIT:
        raise BadExposition(f"{selector.metric}: more than {SERIES_LIMIT} label sets; name some labels")


# --- text -------------------------------------------------------------------------------------------------------------


def _of_text(body: bytes, selector: Selector) -> Series:
    metric = re.escape(selector.metric.encode())
    lines = re.compile(rb"^" + metric + rb"(_bucket)?[ \t]*(\{.*|[ \t].*)$", re.MULTILINE)
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    native: Series = {}
    for line in lines.finditer(body):
        try:
            labels, rest = _labels_of(line.group(2).decode().strip())
        except UnicodeDecodeError as error:
            raise BadExposition(f"{selector.metric}: {error}") from None
        bound = labels.pop("le", None)
        if not selector.matches(labels):
            continue
        key = tuple(sorted(labels.items()))
        if line.group(1):
            if bound is None:
                continue
            if key not in buckets:
                _limited(buckets, selector)
            buckets.setdefault(key, []).append((_float(bound), _float(rest.split()[0] if rest else "")))
        elif rest.startswith("{"):
            _limited(native, selector)
            native[key] = _native_of_text(rest)
    return {key: Classic.of(pairs) for key, pairs in buckets.items()} | native


def _labels_of(text: str) -> tuple[dict[str, str], str]:
    """Return the labels at the head of a sample and what follows them."""
    labels: dict[str, str] = {}
    if not text.startswith("{") or text.startswith("{count:"):
        return labels, text
    at = 1
    while (label := _SAMPLE_LABEL.match(text, at)) is not None:
        labels[label.group(1)] = _unescaped(label.group(2))
        at = label.end()
    end = text.find("}", at)
    if end < 0 or text[at:end].strip(" ,"):
        raise BadExposition(f"labels are not closed: {text[:100]}")
    return labels, text[end + 1 :].strip()


_SAMPLE_LABEL = re.compile(r'[\s,]*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"')


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found.group(1) == "n" else found.group(1), text) if "\\" in text else text


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadExposition(f"{text[:40]!r} is not a number") from None


def _native_of_text(text: str) -> Native:
    fields = {name: value.strip("[]") for name, value in _FIELD.findall(text[: text.find("}") + 1])}

    def numbers(name: str) -> list[float]:
        return [_float(part) for part in fields.get(name, "").split(",") if part.strip()]

    def counts(sign: str) -> dict[int, float]:
        spans = [part.split(":") for part in fields.get(f"{sign}_spans", "").split(",") if part.strip()]
        try:
            pairs = [(int(offset), int(length)) for offset, length in spans]
        except ValueError:
            raise BadExposition(f"spans are not OFFSET:LENGTH: {text[:100]}") from None
        return _spread(pairs, numbers(f"{sign}_deltas"), numbers(f"{sign}_buckets"))

    schema = _float(fields.get("schema", ""))
    if schema != int(schema):
        raise BadExposition(f"schema {schema:g} is not whole")
    return Native.of(
        int(schema),
        _float(fields.get("count", "")),
        counts("positive"),
        _float(fields.get("zero_count", "0")),
        _float(fields.get("zero_threshold", "0")),
        counts("negative"),
    )


def _spread(spans: Sequence[tuple[int, int]], deltas: Sequence[float], absolute: Sequence[float]) -> dict[int, float]:
    """Return counts by bucket number: spans say which numbers, deltas (or absolute counts) how many each holds."""
    if sum(length for _, length in spans) != max(len(deltas), len(absolute)):
        raise BadHistogram("spans and counts are not equally long")
    values = list(absolute)
    if not values:
        running = 0.0
        for delta in deltas:
            running += delta
            values.append(running)
    found, number, taken = {}, 0, 0
    for offset, length in spans:
        number += offset
        for _ in range(length):
            found[number] = values[taken]
            number, taken = number + 1, taken + 1
    return found


# --- protobuf ---------------------------------------------------------------------------------------------------------


def _of_protobuf(body: bytes, selector: Selector) -> Series:
    # Imported here: one host that reads an access log needs none of it.
    from google.protobuf.message import DecodeError

    from cotenant.api.v1 import exposition_pb2 as wire

    found: Series = {}
    wanted = selector.metric.encode()
    for message in _messages(body):
        if wanted not in message[:1024]:
            continue
        try:
            family = wire.MetricFamily.FromString(message)
        except DecodeError as error:
            raise BadExposition(f"not a MetricFamily: {error}") from None
        if family.name != selector.metric:
            continue
        for metric in family.metric:
            labels = {pair.name: pair.value for pair in metric.label}
            if not metric.HasField("histogram") or not selector.matches(labels):
                continue
            _limited(found, selector)
            found[tuple(sorted(labels.items()))] = _counts_of(metric.histogram)
    return found


def _messages(body: bytes) -> Iterator[bytes]:
    """Yield each message of a body in which each is preceded by its length."""
    at = 0
    while at < len(body):
        length, shift = 0, 0
        while True:
            if at >= len(body) or shift > 35:
                raise BadExposition("the protobuf body ends in the middle")
            byte = body[at]
            length |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        if at + length > len(body):
            raise BadExposition("the protobuf body ends in the middle")
        yield body[at : at + length]
        at += length


def _counts_of(histogram: "wire.ExposedHistogram") -> Counts:
    count = histogram.sample_count_float or float(histogram.sample_count)
    if histogram.positive_span or histogram.negative_span or histogram.zero_threshold or histogram.zero_count:
        return Native.of(
            histogram.schema,
            count,
            _spread_spans(histogram.positive_span, histogram.positive_delta, histogram.positive_count),
            histogram.zero_count_float or float(histogram.zero_count),
            histogram.zero_threshold,
            _spread_spans(histogram.negative_span, histogram.negative_delta, histogram.negative_count),
        )
    pairs = [(b.upper_bound, b.cumulative_count_float or float(b.cumulative_count)) for b in histogram.bucket]
    if not any(bound == float("inf") for bound, _ in pairs):
        pairs.append((float("inf"), count))  # this form may leave it out: the count says the same
    return Classic.of(pairs)


def _spread_spans(
    spans: "Sequence[wire.BucketSpan]", deltas: Sequence[int], absolute: Sequence[float]
) -> dict[int, float]:
    pairs = [(span.offset, span.length) for span in spans]
    if sum(length for _, length in pairs) > 10_000:
        raise BadHistogram("more buckets than there can be")
    return _spread(pairs, deltas, absolute)
