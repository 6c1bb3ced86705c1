"""A Prometheus server's HTTP API: what a query says now, and what it said over a stretch of time."""

import dataclasses
import math
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.api.exposition import Labels, Series
from cotenant.latency import fetching
from cotenant.latency.errors import NothingFound, Refused, TooLarge, Unreadable
from cotenant.units.malformed import MALFORMED
from cotenant.units.quantile import BadHistogram, Classic, Counts, Native

SERIES_LIMIT = 5000
_UNPROCESSABLE = 422
"""The status of a query that cannot be executed, like one that would load more samples than the server allows."""
_OF_TIMEOUT = 0.9
"""Of our own deadline, so that it is the server that says what took too long."""
_NOISE = 0.02
"""How far a bucket's bounds, printed in decimal, may be from a power of the schema's base, in buckets."""


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """Where the API is, and how to be believed there."""

    url: str
    trust: fetching.Trust = fetching.NO_TRUST
    timeout_seconds: float = fetching.TIMEOUT_SECONDS
    """For one answer; the server is told, so that it gives up a query which nobody waits for any more."""

    def instant(self, expression: str) -> list["Element"]:
        """Return the elements of the instant vector (or the scalar) that an expression gives now.

        :raises Unreadable: if the server does not answer in time, or not with one.
        """
        return [_element(result) for result in self._ask("query", {"query": expression})]

    def range(self, expression: str, start: float, end: float, step_seconds: float) -> list["Stretch"]:
        """Return what an expression gave at each step of a stretch of time (seconds since the epoch).

        :raises Unreadable: if the server does not answer in time, or not with numbers.
        """
        asked = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_seconds:g}"}
        found = []
        for result in self._ask("query_range", asked):
            values = result.get("values")
            if not isinstance(values, list):
                raise Unreadable(f"{expression[:100]}: gives no numbers over time")
            points = [(float(at), number) for at, text in values if math.isfinite(number := _number(text))]
            found.append(Stretch(_labels(result), points))
        return found

    def _ask(self, path: str, parameters: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        asked = {**parameters, "timeout": f"{self.timeout_seconds * _OF_TIMEOUT * 1000:.0f}ms"}
        url = f"{self.url.rstrip('/')}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        try:
            body, _ = fetching.get(url, {"Accept": "application/json"}, self.trust, self.timeout_seconds)
        except Refused as error:
            if error.status == _UNPROCESSABLE:
                raise TooLarge(str(error)) from None
            raise
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except MALFORMED as error:
            raise Unreadable(f"{self.url}: not an answer of Prometheus' API: {error}") from None
        if answer.status != "success":
            raise Unreadable(f"{self.url}: {answer.error or answer.status}")
        partial = [text for text in answer.warnings or () if not text.startswith("PromQL info")]
        if partial:
            raise Unreadable(f"{self.url}: the answer may be a part only: {partial[0][:200]}")
        kind, result = answer.data.get("resultType"), answer.data.get("result")
        if kind == "scalar":
            return [{"metric": {}, "value": result}]
        if not isinstance(result, list) or not all(isinstance(one, dict) for one in result):
            raise Unreadable(f"{self.url}: the query gives a {kind}; write one that gives a vector")
        if len(result) > SERIES_LIMIT:
            raise TooLarge(f"{self.url}: the query gives {len(result)} series; aggregate them, like sum by (le)")
        return result


class _Answer(msgspec.Struct):
    status: str
    data: dict[str, Any] = {}
    error: str = ""
    warnings: list[str] | None = None
    """What Thanos, remote reading or a function had to leave out; before version 3 with mere information among it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Element:
    """One series now: a number, or a native histogram."""

    labels: Mapping[str, str]
    value: float | None = None
    histogram: Counts | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """One series over time: (seconds since the epoch, number), without what is NaN or infinite."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]


def histograms(elements: Sequence[Element]) -> Series:
    """Return the histograms among the elements by their labels without ``le``, those without requests left out.

    :raises NothingFound: if there are no elements.
    :raises Unreadable: if they are neither buckets (with ``le``) nor native histograms.
    """
    _check_found(elements)
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    found: Series = {}
    for element in elements:
        key = tuple(sorted((name, value) for name, value in element.labels.items() if name != "le"))
        if element.histogram is not None:
            found[key] = element.histogram
        elif "le" in element.labels and element.value is not None:
            buckets.setdefault(key, []).append((_number(element.labels["le"]), element.value))
        else:
            raise Unreadable("the query gives numbers without le; keep the buckets: sum by (le) (rate(…_bucket[1m]))")
    try:
        return {key: Classic.of(pairs) for key, pairs in buckets.items() if not _is_nan(pairs)} | found
    except BadHistogram as error:
        raise Unreadable(f"the query's buckets are no histogram: {error}") from None


def number_of(elements: Sequence[Element]) -> float | None:
    """Return the latency that a query for one quantile gives; None where that is NaN: there were no requests.

    :raises NothingFound: if it gives nothing.
    :raises Unreadable: if it gives several, a histogram, or a number that is no latency.
    """
    _check_found(elements)
    if len(elements) > 1:
        raise Unreadable(f"the query gives {len(elements)} series; aggregate them to one")
    value = elements[0].value
    if value is None:
        raise Unreadable("the query gives a histogram where a number is expected; write it as `query`")
    if math.isnan(value):
        return None
    if not 0 <= value < math.inf:
        raise Unreadable(f"the query gives {value:g}, which is no latency")
    return value


def _check_found(elements: Sequence[Element]) -> None:
    if not elements:
        raise NothingFound("the query gives no series; is the service there, and do name and labels fit?")


def _is_nan(pairs: Sequence[tuple[float, float]]) -> bool:
    return any(math.isnan(count) for _, count in pairs)


def _element(result: Mapping[str, Any]) -> Element:
    labels, value, histogram = _labels(result), result.get("value"), result.get("histogram")
    try:
        if isinstance(histogram, list):
            return Element(labels, histogram=_native(histogram[1]))
        if isinstance(value, list):
            return Element(labels, value=_number(value[1]))
    except (BadHistogram, KeyError, IndexError, TypeError, ValueError) as error:
        raise Unreadable(f"the answer holds no histogram that can be read: {error}") from None
    raise Unreadable("the query gives a matrix; write one that gives a vector")


def _labels(result: Mapping[str, Any]) -> dict[str, str]:
    metric = result.get("metric")
    return {str(k): str(v) for k, v in metric.items()} if isinstance(metric, dict) else {}


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        raise Unreadable(f"{str(text)[:40]!r} is not a number") from None


def _native(histogram: Mapping[str, Any]) -> Counts:
    """Return a histogram that the API lists as buckets [rule, lower, upper, count]; it does not tell the schema."""
    listed = [(float(low), float(high), float(count)) for _, low, high, count in histogram.get("buckets") or []]
    total = float(histogram["count"])
    positive = [(low, high, count) for low, high, count in listed if low > 0 and math.isfinite(high)]
    schema = _schema_of([*positive, *((-high, -low, n) for low, high, n in listed if high < 0)])
    if schema is None:
        return _custom(listed, total)
    zero = [(high, count) for low, high, count in listed if low <= 0 <= high]
    return Native.of(
        schema,
        total,
        {_index(high, schema): count for _, high, count in positive},
        sum(count for _, count in zero),
        max((high for high, _ in zero), default=0.0),
        {_index(-low, schema): count for low, high, count in listed if high < 0},
    )


def _index(bound: float, schema: int) -> int:
    return round(math.log2(bound) * 2.0**schema)


def _schema_of(buckets: Sequence[tuple[float, float, float]]) -> int | None:
    """Return the schema that all bounds belong to; None where there is none, as with custom buckets."""
    if not buckets:
        return 0
    ratio = min(math.log2(high / low) for low, high, _ in buckets)
    schema = round(-math.log2(ratio)) if ratio > 0 else 99
    places = [math.log2(high) * 2.0**schema for _, high, _ in buckets] if -5 < schema < 9 else [0.5]
    fits = all(abs(place - round(place)) < _NOISE for place in places)
    even = all(abs(math.log2(high / low) * 2.0**schema - 1) < _NOISE for low, high, _ in buckets) if fits else False
    return schema if even else None


def _custom(listed: Sequence[tuple[float, float, float]], total: float) -> Classic:
    """Return buckets with bounds of their own as what they are, a classic histogram."""
    seen, pairs = 0.0, []
    for _, high, count in sorted(listed, key=lambda bucket: bucket[1]):
        seen += count
        pairs.append((high, seen))
    if not pairs or pairs[-1][0] != math.inf:
        pairs.append((math.inf, total))
    return Classic.of(pairs)
