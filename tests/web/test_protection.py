import msgspec
import pytest

from cotenant.model.enforcement import Contest, EnforcementState, HeldFile
from cotenant.model.incident import Isolated, LatencyOutcome
from cotenant.web import protection

QUOTA = "sys/fs/cgroup/cpu/cotenant-be/cpu.cfs_quota_us"
ISOLATED = Isolated(detection="ioCongestion", suspect="cotenant-be/backup", victim="web", start="t", steps=2)


def state(**changes: object) -> EnforcementState:
    held = HeldFile(
        path=QUOTA, target="100000", actual="120000", strategy="cpu_suppress", reason="too busy", original="-1",
        refusal="EINVAL",
    )  # fmt: skip
    met = HeldFile(path="sys/x/cpu.idle", target="1", actual="1", strategy="group_identity", reason="BE")
    first = EnforcementState(
        mode="enforce", policy="the default", interface="mainline-idle", online_groups=1, offline_groups=2,
        held=[held, met], contests=[Contest(path=QUOTA, rewrites=5, found="-1", answer="held on the pods")],
        isolation=ISOLATED, offline_delivered_millicores=1500, offline_withheld_millicores=None,
    )  # fmt: skip
    return msgspec.structs.replace(first, **changes)


async def test_the_page_shows_target_actual_and_why(client, feed) -> None:  # type: ignore[no-untyped-def]
    assert "Nothing is enforced here" in (await client.get("/")).text
    feed.moment = msgspec.structs.replace(feed.moment, enforcement=state())
    text = (await client.get("/")).text
    for part in ("100000", "<b>120000</b>", "too busy (EINVAL)", "1.50 CPUs", "held on the pods", "Restore all"):
        assert part in text, part
    assert "cpu.idle" not in text  # it holds what it should, and not by us


async def test_metrics_and_the_api_say_the_same(client, feed) -> None:  # type: ignore[no-untyped-def]
    assert (await client.get("/api/v1/enforcement")).json() == {"enforcement": None}
    assert "cotenant_enforcement" not in (await client.get("/metrics")).text
    feed.moment = msgspec.structs.replace(feed.moment, enforcement=state(journal_lost_total=2))
    answered = (await client.get("/api/v1/enforcement")).json()["enforcement"]
    assert answered["held"][0]["target"] == "100000"
    text = (await client.get("/metrics")).text
    assert "cotenant_offline_delivered_cpus 1.5" in text
    assert "cotenant_offline_withheld" not in text  # unknown is not zero
    assert "cotenant_targets_unmet 1.0" in text
    assert "cotenant_journal_records_lost_total 2.0" in text
    assert 'cotenant_enforcement_mode{cotenant_enforcement_mode="enforce"} 1.0' in text


async def test_restore_all_needs_the_token(client, feed, authorized) -> None:  # type: ignore[no-untyped-def]
    assert (await client.post("/api/v1/restore", headers=authorized)).status_code == 409
    feed.moment = msgspec.structs.replace(feed.moment, enforcement=state())
    assert (await client.post("/api/v1/restore")).status_code == 401
    assert feed.restores == 0
    answer = await client.post("/api/v1/restore", headers=authorized)
    assert answer.json() == {"restored": 3, "left": ["cpu.qos_level: stays; recreate the pod"]}
    assert feed.restores == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "web has not recovered yet"),
        ({"recovery_seconds": 12.4, "recovered": True}, "web had recovered after 12 s"),
        ({"end": "t", "recovery_seconds": 12.4}, "has everything back; web had recovered after 12 s"),
        ({"evicted": True}, "it was told to end"),
    ],
)
def test_what_became_of_a_victim_is_said(changes: dict[str, object], text: str) -> None:
    assert text in protection.sentence_of(msgspec.structs.replace(ISOLATED, **changes))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"rose": True, "action": "suppression", "recovery_seconds": 12.2},
            "shop: p99 12 ms → 240 ms; recovered 12 s after suppress",
        ),
        (
            {"rose": True, "action": "isolation", "recovery_seconds": 3.0, "at_least": True},
            "shop: p99 12 ms → ≥ 240 ms; recovered 3 s after the suspect was held back",
        ),
        (
            {"rose": True, "recovery_seconds": 40.0},
            "shop: p99 12 ms → 240 ms; recovered 40 s after the start; nothing was held back",
        ),
        ({"rose": True, "action": "fast path"}, "shop: p99 12 ms → 240 ms; has not recovered"),
        ({}, "shop: p99 did not rise (12 ms, at most 240 ms)"),
    ],
)
def test_what_became_of_a_service(fields: dict[str, object], said: str) -> None:
    outcome = LatencyOutcome(service="shop", before_seconds=0.012, peak_seconds=0.24, **fields)  # type: ignore[arg-type]
    assert protection.outcome_of(outcome) == said
