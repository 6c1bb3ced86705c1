"""Which values of NodeSLO's fields mean something, by field name: ranges, words, quantities, and what is below what."""

from collections.abc import Mapping

_PERCENT = (0, 100)
_AMOUNT = (0, (1 << 63) - 1)
RANGES: Mapping[str, tuple[int, int]] = {
    "cpuSuppressThresholdPercent": _PERCENT,
    "cpuSuppressMinPercent": _PERCENT,
    "memoryEvictThresholdPercent": _PERCENT,
    "memoryEvictLowerPercent": _PERCENT,
    "memoryAllocatableEvictThresholdPercent": (0, 1 << 31),
    "memoryAllocatableEvictLowerPercent": (0, 1 << 31),
    "cpuEvictBESatisfactionUpperPercent": _PERCENT,
    "cpuEvictBESatisfactionLowerPercent": _PERCENT,
    "cpuEvictBEUsageThresholdPercent": _PERCENT,
    "cpuEvictTimeWindowSeconds": (1, 1 << 31),
    "cpuEvictThresholdPercent": _PERCENT,
    "cpuEvictLowerPercent": _PERCENT,
    "cpuAllocatableEvictThresholdPercent": (0, 1 << 31),
    "cpuAllocatableEvictLowerPercent": (0, 1 << 31),
    "evictEnabledPriorityThreshold": (-(1 << 31), (1 << 31) - 1),
    "allocatableEvictPriorityThreshold": (-(1 << 31), 7999),
    "groupIdentity": (-1, 2),
    "schedIdle": (0, 1),
    "minLimitPercent": _PERCENT,
    "lowLimitPercent": _PERCENT,
    "throttlingPercent": _PERCENT,
    "wmarkRatio": _PERCENT,
    "wmarkScalePermill": (1, 1000),
    "wmarkMinAdj": (-25, 50),
    "priorityEnable": (0, 1),
    "priority": (0, 12),
    "oomKillGroup": (0, 1),
    "pageCacheLimitPercent": _PERCENT,
    "pageCacheLimitSize": _AMOUNT,
    "catRangeStartPercent": _PERCENT,
    "catRangeEndPercent": _PERCENT,
    "mbaPercent": (1, 100),
    "ioWeightPercent": (1, 100),
    **dict.fromkeys(("readIOPS", "writeIOPS", "readBPS", "writeBPS", "readLatency", "writeLatency"), _AMOUNT),
    "readLatencyPercent": _PERCENT,
    "writeLatencyPercent": _PERCENT,
    **dict.fromkeys(("modelReadBPS", "modelReadSeqIOPS", "modelReadRandIOPS"), _AMOUNT),
    **dict.fromkeys(("modelWriteBPS", "modelWriteSeqIOPS", "modelWriteRandIOPS"), _AMOUNT),
    "cpuBurstPercent": (1, 10000),
    "cfsQuotaBurstPercent": (100, 1 << 31),
    "cfsQuotaBurstPeriodSeconds": (-1, 1 << 31),
    "sharePoolThresholdPercent": _PERCENT,
    "minFreeKbytesFactor": (1, 1 << 31),
    "watermarkScaleFactor": (1, 400),
    "memcgReapBackGround": (0, 1),
    "schedGroupIdentityEnabled": (0, 1),
    "schedIdleSaverWmark": _AMOUNT,
    "pageCacheLimitEnabled": (0, 1),
}
"""By field name: the values that mean something."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    "cpuSuppressPolicy": ("cpuset", "cfsQuota"),
    "cpuEvictPolicy": ("evictByRealLimit", "evictByAllocatable"),
    "cpuPolicy": ("groupIdentity", "coreSched"),
    "netQOSPolicy": ("tc", "terway-qos"),
    "policy": ("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"),
    "type": ("device", "volumegroup", "podvolume"),
    "base": ("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"),
}
"""By field name: the words that mean something."""
_NETWORK = ("ingressRequest", "ingressLimit", "egressRequest", "egressLimit")
QUANTITIES: frozenset[str] = frozenset({"totalNetworkBandwidth", *_NETWORK})
"""By field name: texts that are quantities."""
SHARES: frozenset[str] = frozenset(_NETWORK)
"""By field name: numbers that are percentages, where a text is a quantity."""
NAMED = frozenset(key for key in CHOICES if key.endswith("Policy"))
"""Those whose name means one thing wherever it stands."""
ORDERED: tuple[tuple[str, str], ...] = (
    ("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
    ("memoryAllocatableEvictLowerPercent", "memoryAllocatableEvictThresholdPercent"),
    ("cpuEvictLowerPercent", "cpuEvictThresholdPercent"),
    ("cpuAllocatableEvictLowerPercent", "cpuAllocatableEvictThresholdPercent"),
    ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
    ("catRangeStartPercent", "catRangeEndPercent"),
)
"""Fields of one object, of which the first must be below the second."""
