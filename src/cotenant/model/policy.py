"""Policy of one node: Koordinator's NodeSLO, with its fields and its defaults.

A field that is left out is None here; the methods give the value in force. Unknown keys are ignored, as in every
object from an API server. A value out of its range counts as left out and is named beside the policy.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from cotenant.model import policy_values
from cotenant.units import errors, plain
from cotenant.units.malformed import MALFORMED, problem

ClassName = Literal["LSR", "LS", "BE", "SYSTEM"]
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class BadPolicy(errors.CotenantError):
    """The file is not a NodeSLO."""


class _Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields as the API server spells them."""


class ThresholdStrategy(_Camel, frozen=True, kw_only=True):
    """``resourceUsedThresholdWithBE``: how far offline work may go, and when it is evicted."""

    enable: bool | None = None
    cpu_suppress_threshold_percent: int | None = None
    cpu_suppress_min_percent: int | None = None
    cpu_suppress_policy: str | None = None
    memory_evict_threshold_percent: int | None = None
    memory_evict_lower_percent: int | None = None
    memory_allocatable_evict_threshold_percent: int | None = None
    memory_allocatable_evict_lower_percent: int | None = None
    cpu_evict_be_satisfaction_upper_percent: int | None = msgspec.field(
        default=None, name="cpuEvictBESatisfactionUpperPercent"
    )
    cpu_evict_be_satisfaction_lower_percent: int | None = msgspec.field(
        default=None, name="cpuEvictBESatisfactionLowerPercent"
    )
    cpu_evict_be_usage_threshold_percent: int | None = msgspec.field(
        default=None, name="cpuEvictBEUsageThresholdPercent"
    )
    cpu_evict_time_window_seconds: int | None = None
    cpu_evict_threshold_percent: int | None = None
    cpu_evict_lower_percent: int | None = None
    cpu_allocatable_evict_threshold_percent: int | None = None
    cpu_allocatable_evict_lower_percent: int | None = None
    cpu_evict_policy: str | None = None
    evict_enabled_priority_threshold: int | None = None
    allocatable_evict_priority_threshold: int | None = None


class CpuQos(_Camel, frozen=True, kw_only=True):
    enable: bool | None = None
    group_identity: int | None = None
    sched_idle: int | None = None
    core_expeller: bool | None = None


class MemoryQos(_Camel, frozen=True, kw_only=True):
    enable: bool | None = None
    min_limit_percent: int | None = None
    low_limit_percent: int | None = None
    throttling_percent: int | None = None
    wmark_ratio: int | None = None
    wmark_scale_permill: int | None = None
    wmark_min_adj: int | None = None
    priority_enable: int | None = None
    priority: int | None = None
    oom_kill_group: int | None = None
    page_cache_enable: bool | None = None
    page_cache_limit_percent: int | None = None
    page_cache_limit_size: int | None = None
    page_cache_reclaim_sync: bool | None = None


class IoConfig(_Camel, frozen=True, kw_only=True):
    read_iops: int | None = msgspec.field(default=None, name="readIOPS")
    write_iops: int | None = msgspec.field(default=None, name="writeIOPS")
    read_bps: int | None = msgspec.field(default=None, name="readBPS")
    write_bps: int | None = msgspec.field(default=None, name="writeBPS")
    io_weight_percent: int | None = None
    read_latency: int | None = None
    write_latency: int | None = None
    read_latency_percent: int | None = None
    write_latency_percent: int | None = None
    enable_user_model: bool | None = None
    model_read_bps: int | None = msgspec.field(default=None, name="modelReadBPS")
    model_write_bps: int | None = msgspec.field(default=None, name="modelWriteBPS")
    model_read_seq_iops: int | None = msgspec.field(default=None, name="modelReadSeqIOPS")
    model_write_seq_iops: int | None = msgspec.field(default=None, name="modelWriteSeqIOPS")
    model_read_rand_iops: int | None = msgspec.field(default=None, name="modelReadRandIOPS")
    model_write_rand_iops: int | None = msgspec.field(default=None, name="modelWriteRandIOPS")


class Block(_Camel, frozen=True, kw_only=True):
    name: str = ""
    type: str = "device"
    io_cfg: IoConfig = IoConfig()


class BlkioQos(_Camel, frozen=True, kw_only=True):
    enable: bool | None = None
    blocks: tuple[Block, ...] | None = None


class ResctrlQos(_Camel, frozen=True, kw_only=True):
    enable: bool | None = None
    cat_range_start_percent: int | None = msgspec.field(default=None, name="catRangeStartPercent")
    cat_range_end_percent: int | None = msgspec.field(default=None, name="catRangeEndPercent")
    mba_percent: int | None = None


class NetworkQos(_Camel, frozen=True, kw_only=True):
    enable: bool | None = None
    ingress_request: int | str | None = None
    ingress_limit: int | str | None = None
    egress_request: int | str | None = None
    egress_limit: int | str | None = None


class ClassQos(_Camel, frozen=True, kw_only=True):
    cpu_qos: CpuQos = msgspec.field(default_factory=CpuQos, name="cpuQOS")
    memory_qos: MemoryQos = msgspec.field(default_factory=MemoryQos, name="memoryQOS")
    blkio_qos: BlkioQos = msgspec.field(default_factory=BlkioQos, name="blkioQOS")
    resctrl_qos: ResctrlQos = msgspec.field(default_factory=ResctrlQos, name="resctrlQOS")
    network_qos: NetworkQos = msgspec.field(default_factory=NetworkQos, name="networkQOS")


class Policies(_Camel, frozen=True, kw_only=True):
    cpu_policy: str | None = None
    net_qos_policy: str | None = msgspec.field(default=None, name="netQOSPolicy")


class QosStrategy(_Camel, frozen=True, kw_only=True):
    """``resourceQOSStrategy``: what each class gets."""

    policies: Policies = Policies()
    lsr_class: ClassQos = ClassQos()
    ls_class: ClassQos = ClassQos()
    be_class: ClassQos = ClassQos()
    system_class: ClassQos = ClassQos()
    cgroup_root: ClassQos = ClassQos()

    def of(self, name: ClassName) -> ClassQos:
        """Return the settings of one class."""
        return {"LSR": self.lsr_class, "LS": self.ls_class, "BE": self.be_class, "SYSTEM": self.system_class}[name]


class CpuBurstStrategy(_Camel, frozen=True, kw_only=True):
    """``cpuBurstStrategy``; the same fields in a pod's annotation override it one by one."""

    policy: str | None = None
    cpu_burst_percent: int | None = None
    cfs_quota_burst_percent: int | None = msgspec.field(default=None, name="cfsQuotaBurstPercent")
    cfs_quota_burst_period_seconds: int | None = msgspec.field(default=None, name="cfsQuotaBurstPeriodSeconds")
    share_pool_threshold_percent: int | None = None


class SystemStrategy(_Camel, frozen=True, kw_only=True):
    """``systemStrategy``: node-wide kernel settings."""

    min_free_kbytes_factor: int | None = None
    watermark_scale_factor: int | None = None
    memcg_reap_back_ground: int | None = None
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    sched_features: Mapping[str, bool] = {}
    page_cache_limit_enabled: int | None = None
    total_network_bandwidth: int | str | None = None


class CgroupPath(_Camel, frozen=True, kw_only=True):
    base: str = "CgroupRoot"
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(_Camel, frozen=True, kw_only=True):
    """Work outside Kubernetes that has a class of its own."""

    name: str
    priority: str = ""
    qos: str = ""
    cgroup_path: CgroupPath | None = None

    @property
    def offline(self) -> bool:
        """Whether it is offline work: class BE and below the BestEffort directory, where suppression reaches it."""
        return self.qos == "BE" and self.cgroup_path is not None and self.cgroup_path.base == "KubepodsBesteffort"


class NodeSlo(_Camel, frozen=True, kw_only=True):
    """The policy of one node (``spec`` of a NodeSLO)."""

    threshold: ThresholdStrategy = msgspec.field(default_factory=ThresholdStrategy, name="resourceUsedThresholdWithBE")
    qos: QosStrategy = msgspec.field(default_factory=QosStrategy, name="resourceQOSStrategy")
    cpu_burst: CpuBurstStrategy = msgspec.field(default_factory=CpuBurstStrategy, name="cpuBurstStrategy")
    system: SystemStrategy | None = msgspec.field(default=None, name="systemStrategy")
    host_applications: tuple[HostApplication, ...] = ()
    extensions: Mapping[str, Any] = {}


DEFAULT_GROUP_IDENTITY: Mapping[ClassName, int] = {"LSR": 2, "LS": 2, "BE": -1, "SYSTEM": 0}
DEFAULT_CORE_EXPELLER: Mapping[ClassName, bool] = {"LSR": True, "LS": True, "BE": False, "SYSTEM": False}
DEFAULT_CAT_RANGE: Mapping[ClassName, tuple[int, int]] = {
    "LSR": (0, 100),
    "LS": (0, 100),
    "BE": (0, 30),
    "SYSTEM": (0, 100),
}
NO_MEMORY_QOS = MemoryQos(
    min_limit_percent=0,
    low_limit_percent=0,
    throttling_percent=0,
    wmark_ratio=0,
    wmark_scale_permill=50,
    wmark_min_adj=0,
    priority_enable=0,
    priority=0,
    oom_kill_group=0,
)
"""What a class without ``enable`` means, and the pod policy ``none``."""
DEFAULT_MEMORY_QOS: Mapping[ClassName, MemoryQos] = {
    "LSR": msgspec.structs.replace(NO_MEMORY_QOS, wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25),
    "LS": msgspec.structs.replace(NO_MEMORY_QOS, wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25),
    "BE": msgspec.structs.replace(NO_MEMORY_QOS, wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=50),
    "SYSTEM": NO_MEMORY_QOS,
}

DEFAULT_SPEC: Mapping[str, Mapping[str, Any]] = {
    "resourceUsedThresholdWithBE": {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    },
    "resourceQOSStrategy": {},
    "cpuBurstStrategy": {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
    "systemStrategy": {
        "minFreeKbytesFactor": 100,
        "watermarkScaleFactor": 150,
        "memcgReapBackGround": 0,
        "totalNetworkBandwidth": "0",
    },
}
"""What a manager writes where nothing is configured. It leaves the classes of ``resourceQOSStrategy`` out: what an
enabled class does not say is the node's default, by class, below and above."""


def decode(value: object, place: str = "NodeSLO") -> tuple[NodeSlo, tuple[str, ...]]:
    """Return the policy in a NodeSLO object (parsed YAML or JSON), and what is wrong with single values in it.

    A value out of its range is left out of the policy and named; of bounds that do not go together the strategy that
    follows them says so.

    :raises BadPolicy: if it is not a NodeSLO, or a field has the wrong type.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("spec", {}) or {}, Mapping):
        raise BadPolicy(f"{place}: not an object with a spec; give a NodeSLO as kubectl get nodeslo -o yaml prints it")
    kind = value.get("kind", "NodeSLO")
    if kind != "NodeSLO":
        raise BadPolicy(f"{place}: kind is {kind!r}; give a NodeSLO")
    complaints: list[str] = []
    spec = value.get("spec") or {}
    try:
        spec = _within_range(plain.without_nulls(spec), "spec", complaints)
        slo = msgspec.convert(spec, NodeSlo, strict=False)
    except MALFORMED as error:
        told = problem(error, spec, NodeSlo, strict=False).replace("`$", "`spec")
        raise BadPolicy(f"{place}: {told}; write a value of that type") from None
    return slo, tuple(complaints)


def override(base: _Struct, annotation: Mapping[str, Any], place: str) -> tuple[_Struct, tuple[str, ...]]:
    """Return ``base`` with the fields that an annotation sets, and what is wrong with single values in it.

    An annotation of the wrong shape changes nothing, and is named.
    """
    complaints: list[str] = []
    kept = annotation
    try:
        kept = _within_range(plain.without_nulls(annotation), place, complaints)
        given = msgspec.convert(kept, type(base), strict=False)
    except MALFORMED as error:
        return base, (problem(error, kept, type(base), strict=False).replace("`$", f"`{place}"),)
    changes = {name: value for name in base.__struct_fields__ if (value := getattr(given, name)) is not None}
    return msgspec.structs.replace(base, **changes), tuple(complaints)


def fields(type_: type[msgspec.Struct] = NodeSlo, prefix: str = "spec") -> Iterator[str]:
    """Yield the path of every field that a NodeSLO may set, like ``spec.cpuBurstStrategy.policy``."""
    for field in msgspec.structs.fields(type_):
        inner = _struct_in(field.type)
        place = f"{prefix}.{field.encode_name}"
        if inner is None:
            yield place
        else:
            yield from fields(inner, f"{place}[]" if str(field.type).startswith("tuple") else place)


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next((found for part in get_args(annotation) if (found := _struct_in(part))), None)


def _within_range(value: Any, place: str, complaints: list[str]) -> Any:
    if isinstance(value, list):
        return [_within_range(item, f"{place}[{index}]", complaints) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        words = (
            policy_values.CHOICES.get(key) if key in policy_values.NAMED or place.endswith("cpuBurstStrategy") else None
        )
        if words and isinstance(item, str) and item and item not in words:
            complaints.append(f"{place}.{key}: {item!r} is none of {', '.join(words)}")
        bounds = policy_values.RANGES.get(key)
        number = _whole(item) if bounds else None
        if bounds and number is not None and not bounds[0] <= number <= bounds[1]:
            complaints.append(f"{place}.{key}: {number} is not within {bounds[0]}..{bounds[1]}; ignored")
            continue
        kept[key] = _within_range(item, f"{place}.{key}", complaints)
    return kept


def _whole(value: Any) -> int | None:
    """Return the whole number that a field takes a value for (``"65"`` and ``65.0``, too), or None for none."""
    if isinstance(value, bool | dict | list):
        return None
    try:
        return msgspec.convert(value, int, strict=False)
    except MALFORMED:
        return None
