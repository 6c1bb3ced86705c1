from cotenant.act import slo_fields
from cotenant.model import policy


def test_every_field_is_applied_or_refused_and_none_is_both() -> None:
    for field in policy.fields():
        strategies, refusal = slo_fields.applied_by(field), slo_fields.refusal(field)
        assert bool(strategies) != bool(refusal), field


def test_only_fields_that_are_set_to_something_are_reported() -> None:
    slo = {
        "spec": {
            "extensions": {},
            "systemStrategy": {"totalNetworkBandwidth": "10Gi"},
            "resourceQOSStrategy": {
                "lsClass": {"blkioQOS": {"enable": False}},
                "beClass": {"cpuQOS": {"schedIdle": 1}, "networkQOS": {"egressLimit": 50, "ingressLimit": 50}},
                "lsrClass": {"blkioQOS": {"blocks": [{"name": "vda"}]}},
            },
        }
    }
    assert {field for field, _ in slo_fields.refused(slo)} == {
        "spec.resourceQOSStrategy.beClass.networkQOS.ingressLimit",
        "spec.resourceQOSStrategy.beClass.cpuQOS.schedIdle",
        "spec.resourceQOSStrategy.lsrClass.blkioQOS.blocks[].name",
    }


def test_what_a_manager_writes_by_default_is_no_request_that_is_refused() -> None:
    assert list(slo_fields.refused({"spec": policy.DEFAULT_SPEC})) == []
