from typing import Any

import msgspec
import pytest

from cotenant.api import crd, report, schema
from cotenant.detect import rules
from cotenant.model import evaluation

STATE = evaluation.Evaluation(
    node="n1",
    time="2026-11-30T00:00:00Z",
    interference_level=0.42,
    bucket="medium",
    coverage=0.7,
    hard=["psiMemoryFull"],
    detections={
        "ioCongestion": evaluation.Detection(
            triggered=True,
            index=0.8,
            signals={"block.p99_usec": evaluation.SignalState(value=81000.0, index=0.8, threshold=20000.0)},
            victims=[evaluation.Victim(name="ns/pod", evidence="io some 0.4")],
            suspects=[evaluation.Suspect(name="ns/other", confidence=0.9, evidence="writes rose")],
        ),
        "cachePollution": evaluation.Detection(),
    },
    missing={"llc.miss_ratio": "no_pmu"},
)
FACTS = report.NodeFacts(
    mode="observe", priority_interface="openeuler-qos-level", kata={"kvm": True}, refused_fields=["cpuBurst"]
)


def faults(value: Any, found: dict[str, Any], place: str = "") -> list[str]:
    """Return what of a value a structural schema would prune or refuse."""
    if found.get("x-kubernetes-preserve-unknown-fields"):
        return []
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
    if not isinstance(value, kinds[found["type"]]):
        return [f"{place}: {value!r} is no {found['type']}"]
    if "enum" in found and value not in found["enum"]:
        return [f"{place}: {value!r} is not listed"]
    if isinstance(value, list):
        return [fault for item in value for fault in faults(item, found["items"], f"{place}[]")]
    if isinstance(value, dict):
        known, more = found.get("properties", {}), found.get("additionalProperties")
        missing = [f"{place}.{name} is required" for name in found.get("required", []) if name not in value]
        return missing + [
            fault
            for name, item in value.items()
            for fault in (
                faults(item, known.get(name, more), f"{place}.{name}")
                if name in known or more
                else [f"{place}.{name} is unknown"]
            )
        ]
    return []


def schema_of(short: str) -> dict[str, Any]:
    (version,) = crd.definition(crd.KINDS[short])["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def test_what_the_analyzer_publishes_fits_the_schema() -> None:
    status = report.status_of(STATE, {"psi.io_some_ratio": 0.41}, "2026-11-30T00:00:00Z", "2026-11-30T00:30:00Z", FACTS)
    published = report.NodeInterferenceReport(
        metadata={"name": "n1"}, spec=report.ReportSpec(node_name="n1"), status=status
    )
    value = msgspec.json.decode(msgspec.json.encode(published))
    del value["metadata"]  # the API server's own
    assert faults(value, schema_of("nir")) == []
    assert value["status"]["detections"][0] == {"type": "cachePollution"}  # unknown is absent
    assert value["status"]["missing"] == [{"signal": "llc.miss_ratio", "reason": "no_pmu"}]
    assert value["status"]["nodeFacts"]["priorityInterface"] == "openeuler-qos-level"


def test_the_contract_s_example_of_rules_fits_the_schema() -> None:
    spec = {
        "preset": "default",
        "nodeSelector": {},
        "windowSeconds": 10,
        "detections": {
            "ioCongestion": {
                "enabled": True,
                "weight": 0.3,
                "signals": [{"signal": "block.p99_usec", "normal": 5000, "threshold": 20000, "saturation": 100000}],
                "fallbackSignals": [],
            }
        },
        "hardLimits": {"psiMemoryFullRatio": 0.05},
        "hysteresis": {"enterFor": 2, "hardEnterForSeconds": 30, "leaveRatio": 0.8, "leaveForSeconds": 10},
        "guard": {"maxExcludedFraction": 0.05, "trialSeconds": 120},
    }
    assert faults({"kind": "DetectionRuleConfig", "spec": spec}, schema_of("drc")) == []
    assert faults({"spec": {"windowSecond": 10}}, schema_of("drc")) == [".spec.windowSecond is unknown"]
    limits = schema_of("drc")["properties"]["spec"]["properties"]["hardLimits"]["properties"]
    assert limits["psiIoSomeRatio"]["nullable"] is True  # null is off


def test_nothing_of_the_rules_has_a_default_that_would_hide_the_preset() -> None:
    assert "'default':" not in str(schema_of("drc"))


@pytest.mark.parametrize("short", list(crd.KINDS))
def test_every_list_says_how_it_merges_and_every_map_key_is_required(short: str) -> None:
    def walk(found: dict[str, Any]) -> None:
        if found.get("type") == "array":
            assert found["x-kubernetes-list-type"] in ("map", "set", "atomic")
            for key in found.get("x-kubernetes-list-map-keys", []):
                assert key in found["items"]["required"]
            walk(found["items"])
        for child in found.get("properties", {}).values():
            walk(child)

    walk(schema_of(short))


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(TypeError, match="no structural schema"):
        schema.Generator(schema.Traits()).of(complex)


def test_every_field_of_the_rules_is_described() -> None:
    for kind in (rules.Rules, rules.DetectionRule, rules.SignalRule, rules.HardLimits, rules.Hysteresis, rules.Guard):
        found = schema.Generator(schema.Traits()).of(kind)
        assert all(field.get("description") for field in found["properties"].values())
