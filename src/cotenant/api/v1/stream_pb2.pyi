from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UsageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsageTable(_message.Message):
    __slots__ = ("nodes", "leader", "complete")
    NODES_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeUsage]
    leader: str
    complete: bool
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeUsage, _Mapping]]] = ..., leader: _Optional[str] = ..., complete: _Optional[bool] = ...) -> None: ...

class NodeUsage(_message.Message):
    __slots__ = ("node", "json")
    NODE_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    node: str
    json: bytes
    def __init__(self, node: _Optional[str] = ..., json: _Optional[bytes] = ...) -> None: ...

class Upward(_message.Message):
    __slots__ = ("hello", "batch")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    batch: Batch
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "boot_id", "version", "facts")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    node: str
    boot_id: str
    version: str
    facts: bytes
    def __init__(self, node: _Optional[str] = ..., boot_id: _Optional[str] = ..., version: _Optional[str] = ..., facts: _Optional[bytes] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("samples", "ledger")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    ledger: bytes
    def __init__(self, samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ..., ledger: _Optional[bytes] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("uptime_seconds", "json")
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    uptime_seconds: float
    json: bytes
    def __init__(self, uptime_seconds: _Optional[float] = ..., json: _Optional[bytes] = ...) -> None: ...

class Downward(_message.Message):
    __slots__ = ("period_milliseconds", "samples_per_message", "rules_version", "alarms", "leader")
    PERIOD_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RULES_VERSION_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    period_milliseconds: int
    samples_per_message: int
    rules_version: str
    alarms: _containers.RepeatedCompositeFieldContainer[Alarm]
    leader: str
    def __init__(self, period_milliseconds: _Optional[int] = ..., samples_per_message: _Optional[int] = ..., rules_version: _Optional[str] = ..., alarms: _Optional[_Iterable[_Union[Alarm, _Mapping]]] = ..., leader: _Optional[str] = ...) -> None: ...

class Alarm(_message.Message):
    __slots__ = ("signal", "value", "falling")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FALLING_FIELD_NUMBER: _ClassVar[int]
    signal: str
    value: float
    falling: bool
    def __init__(self, signal: _Optional[str] = ..., value: _Optional[float] = ..., falling: _Optional[bool] = ...) -> None: ...
