"""Node-wide kernel settings that the policy names."""

from collections.abc import Iterator

from cotenant.act.draft import Draft
from cotenant.act.registry import strategy
from cotenant.model.policy import NodeSlo, SystemStrategy
from cotenant.model.snapshot import Snapshot

MIN_FREE_KBYTES = (10_240, 10_485_760)
WATERMARK_SCALE = (10, 400)
PREFIX = "spec.systemStrategy"


def min_free_kbytes(capacity_bytes: int, factor: int) -> int:
    """Return ``vm.min_free_kbytes`` for ten-thousandths of the node's memory, valid or not."""
    return capacity_bytes // 1024 * factor // 10_000


@strategy(
    "system",
    fields=(
        f"{PREFIX}.minFreeKbytesFactor",
        f"{PREFIX}.watermarkScaleFactor",
        f"{PREFIX}.memcgReapBackGround",
        f"{PREFIX}.schedGroupIdentityEnabled",
        f"{PREFIX}.schedIdleSaverWmark",
        f"{PREFIX}.schedFeatures",
        f"{PREFIX}.pageCacheLimitEnabled",
    ),
    features=("vm.min_free_kbytes", "vm.watermark_scale_factor", "memcg_reaper", "sched_features"),
)
def decide(draft: Draft, slo: NodeSlo) -> None:
    """Write the node-wide settings that the policy sets; one that is out of the kernel's range is left alone and named.

    Only fields that the policy sets are written: these settings belong to the node, not to us.
    """
    if slo.system is None:
        return
    if slo.system.min_free_kbytes_factor is not None and draft.snapshot.node.capacity_memory_bytes is None:
        draft.skipped.append("minFreeKbytesFactor: the node's memory is not known (give --node)")
    for field, path, value, bounds in _settings(draft.snapshot, slo.system):
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            draft.notices.append(f"{PREFIX}.{field}: {value} is not within {bounds[0]}..{bounds[1]}; not written")
        elif not draft.write(path, str(value), f"systemStrategy.{field}"):
            draft.notices.append(f"{PREFIX}.{field}: this kernel has no {path}")
        elif field == "schedGroupIdentityEnabled" and value:
            # Both at once lock the machine up; the order of writing turns this one off first.
            draft.write(draft.snapshot.sysctl("kernel/sched_core"), "0", "excludes group identity")
    _features(draft, slo.system)


Row = tuple[str, str, int, tuple[int, int] | None]


def _settings(snapshot: Snapshot, system: SystemStrategy) -> Iterator[Row]:
    """Yield field, path, value and valid range of what is set."""
    capacity = snapshot.node.capacity_memory_bytes
    if system.min_free_kbytes_factor is not None and capacity is not None:
        value = min_free_kbytes(capacity, system.min_free_kbytes_factor)
        yield "minFreeKbytesFactor", snapshot.sysctl("vm/min_free_kbytes"), value, MIN_FREE_KBYTES
    mm = f"{snapshot.sys}/kernel/mm"
    rows = (
        ("watermarkScaleFactor", snapshot.sysctl("vm/watermark_scale_factor"), system.watermark_scale_factor),
        ("memcgReapBackGround", f"{mm}/memcg_reaper/reap_background", system.memcg_reap_back_ground),
        (
            "schedGroupIdentityEnabled",
            snapshot.sysctl("kernel/sched_group_identity_enabled"),
            system.sched_group_identity_enabled,
        ),
        ("schedIdleSaverWmark", snapshot.sysctl("kernel/sched_idle_saver_wmark"), system.sched_idle_saver_wmark),
        ("pageCacheLimitEnabled", f"{mm}/pagecache_limit/enabled", system.page_cache_limit_enabled),
    )
    for field, path, wanted in rows:
        if wanted is not None:
            yield field, path, wanted, WATERMARK_SCALE if field == "watermarkScaleFactor" else None


def _features(draft: Draft, system: SystemStrategy) -> None:
    debug = f"{draft.snapshot.sys}/kernel/debug"
    places = (f"{debug}/sched_features", f"{debug}/sched/features")
    path = next((place for place in places if draft.snapshot.files.exists(place)), None)
    have = (draft.snapshot.files.read(path) or "").split() if path else []
    for name, on in sorted(system.sched_features.items()):
        if path is None or not {name, f"NO_{name}"} & set(have):
            draft.notices.append(f"{PREFIX}.schedFeatures: this kernel has no {name}")
        elif (name if on else f"NO_{name}") not in have:
            draft.toggle(path, name if on else f"NO_{name}", f"systemStrategy.schedFeatures.{name}")
