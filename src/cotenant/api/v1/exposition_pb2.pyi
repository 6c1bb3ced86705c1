from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MetricFamily(_message.Message):
    __slots__ = ("name", "metric")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    name: str
    metric: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, name: _Optional[str] = ..., metric: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("label", "histogram")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    label: _containers.RepeatedCompositeFieldContainer[LabelPair]
    histogram: ExposedHistogram
    def __init__(self, label: _Optional[_Iterable[_Union[LabelPair, _Mapping]]] = ..., histogram: _Optional[_Union[ExposedHistogram, _Mapping]] = ...) -> None: ...

class LabelPair(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ExposedHistogram(_message.Message):
    __slots__ = ("sample_count", "bucket", "sample_count_float", "schema", "zero_threshold", "zero_count", "zero_count_float", "negative_span", "negative_delta", "negative_count", "positive_span", "positive_delta", "positive_count")
    SAMPLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_COUNT_FLOAT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ZERO_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    ZERO_COUNT_FIELD_NUMBER: _ClassVar[int]
    ZERO_COUNT_FLOAT_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_SPAN_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_DELTA_FIELD_NUMBER: _ClassVar[int]
    NEGATIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_SPAN_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_DELTA_FIELD_NUMBER: _ClassVar[int]
    POSITIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    sample_count: int
    bucket: _containers.RepeatedCompositeFieldContainer[Bucket]
    sample_count_float: float
    schema: int
    zero_threshold: float
    zero_count: int
    zero_count_float: float
    negative_span: _containers.RepeatedCompositeFieldContainer[BucketSpan]
    negative_delta: _containers.RepeatedScalarFieldContainer[int]
    negative_count: _containers.RepeatedScalarFieldContainer[float]
    positive_span: _containers.RepeatedCompositeFieldContainer[BucketSpan]
    positive_delta: _containers.RepeatedScalarFieldContainer[int]
    positive_count: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, sample_count: _Optional[int] = ..., bucket: _Optional[_Iterable[_Union[Bucket, _Mapping]]] = ..., sample_count_float: _Optional[float] = ..., schema: _Optional[int] = ..., zero_threshold: _Optional[float] = ..., zero_count: _Optional[int] = ..., zero_count_float: _Optional[float] = ..., negative_span: _Optional[_Iterable[_Union[BucketSpan, _Mapping]]] = ..., negative_delta: _Optional[_Iterable[int]] = ..., negative_count: _Optional[_Iterable[float]] = ..., positive_span: _Optional[_Iterable[_Union[BucketSpan, _Mapping]]] = ..., positive_delta: _Optional[_Iterable[int]] = ..., positive_count: _Optional[_Iterable[float]] = ...) -> None: ...

class Bucket(_message.Message):
    __slots__ = ("cumulative_count", "upper_bound", "cumulative_count_float")
    CUMULATIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_COUNT_FLOAT_FIELD_NUMBER: _ClassVar[int]
    cumulative_count: int
    upper_bound: float
    cumulative_count_float: float
    def __init__(self, cumulative_count: _Optional[int] = ..., upper_bound: _Optional[float] = ..., cumulative_count_float: _Optional[float] = ...) -> None: ...

class BucketSpan(_message.Message):
    __slots__ = ("offset", "length")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    length: int
    def __init__(self, offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...
