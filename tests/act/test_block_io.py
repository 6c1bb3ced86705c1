from collections.abc import Callable
from typing import Any

from tests.act.machine import Machine, writes

from cotenant.act.draft import Plan

Make = Callable[..., Machine]


def blocks(**config: Any) -> dict[str, Any]:
    return {"enable": True, "blocks": [{"name": "/dev/vda", "type": "device", "ioCfg": config}]}


def slo(**classes: Any) -> dict[str, Any]:
    names = {"be": "beClass", "root": "cgroupRoot", "ls": "lsClass"}
    return {"resourceQOSStrategy": {names[name]: {"blkioQOS": value} for name, value in classes.items()}}


def disk(node: Machine) -> Machine:
    node.extra = {"sys/class/block/vda/dev": "254:0\n", "sys/class/block/vda1/dev": "254:1\n"}
    node.extra["sys/class/block/vda1/partition"] = "1\n"
    return node


def test_limits_of_the_offline_directory_on_v1(machine: Make) -> None:
    node = disk(machine())
    wanted = slo(be=blocks(readBPS=1 << 20, writeIOPS=0))
    plan = node.enforce(wanted)
    assert list(writes(plan, "blkio.throttle.read_bps_device").values()) == ["254:0 1048576"]
    assert not writes(plan, "blkio.throttle.write_iops_device")  # no limit is there already
    assert node.plan(wanted).items == ()


def test_on_v1_a_limit_is_stated_where_the_tasks_are(machine: Make) -> None:
    """The kernel throttles each v1 group by itself: a limit of the directory reaches no container."""
    node = disk(machine())
    plain = node.pod("plain", "BestEffort", "BE")
    own = node.pod("own", "BestEffort", "BE", annotations={"koordinator.sh/blkioQOS": blocks(readBPS=4096)})
    online = node.pod("online", "Burstable", "LS")
    wanted = slo(be=blocks(readBPS=1 << 20))
    plan = node.enforce(wanted)
    found = writes(plan, "blkio.throttle.read_bps_device")
    top = "sys/fs/cgroup/blkio"
    expected = {f"{top}/kubepods/besteffort": "254:0 1048576"}
    expected |= {f"{top}/{path}": "254:0 1048576" for path in (plain, node.container(plain))}
    expected |= {f"{top}/{path}": "254:0 4096" for path in (own, node.container(own))}
    assert found == expected
    assert not any(online in path for path in found)
    assert node.plan(wanted).items == ()


def test_limits_on_v2_keep_what_is_not_named(machine: Make) -> None:
    node = disk(machine("mainline-v2"))
    node.write("blkio", "kubepods/besteffort", "io.max", "254:0 wiops=7")
    wanted = slo(be=blocks(readBPS=1 << 20))
    node.enforce(wanted)
    assert node.read("blkio", "kubepods/besteffort", "io.max") == "254:0 rbps=1048576 wbps=max riops=max wiops=7"
    assert node.plan(wanted).items == ()


def test_a_weight_on_v2_needs_the_cost_controller_on_that_disk(machine: Make) -> None:
    node = disk(machine("mainline-v2"))
    alone = node.plan(slo(be=blocks(ioWeightPercent=10)))
    assert not writes(alone, "io.weight")
    assert any("io.cost.qos" in text for text in alone.left_out)
    both = node.plan(slo(be=blocks(ioWeightPercent=10), root=blocks()))
    assert list(writes(both, "io.weight").values()) == ["254:0 10"]
    assert list(writes(both, "io.cost.qos").values()) == [
        "254:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000"
    ]


def test_a_pods_annotation_limits_that_pod(machine: Make) -> None:
    node = disk(machine())
    group = node.pod("a", "Burstable", "LS", annotations={"koordinator.sh/blkioQOS": blocks(writeBPS=4096)})
    plan = node.plan({})
    places = (group, node.container(group))
    found = writes(plan, "blkio.throttle.write_bps_device")
    assert found == {f"sys/fs/cgroup/blkio/{place}": "254:0 4096" for place in places}


def test_a_partition_or_an_unknown_disk_is_named_and_not_written(machine: Make) -> None:
    node = disk(machine())
    for name in ("/dev/vda1", "sdz"):
        wanted = slo(be={"enable": True, "blocks": [{"name": name, "ioCfg": {"readBPS": 1}}]})
        plan = node.plan(wanted)
        assert plan.items == ()
        assert any(name in text for text in plan.notices)


def test_online_classes_have_no_directory_to_limit(machine: Make) -> None:
    node = disk(machine())
    plan = node.plan(slo(ls=blocks(readBPS=1)))
    assert plan.items == ()
    assert any("class LS is not supported" in text for text in plan.notices)


def test_limits_that_we_set_are_lifted_when_they_are_off(machine: Make) -> None:
    node = disk(machine())
    node.enforce(slo(be=blocks(readBPS=1 << 20)))
    path = node.path("blkio", "kubepods/besteffort", "blkio.throttle.read_bps_device")
    assert node.plan({}).items == ()
    node.enforce({}, journal={path: ""})
    assert node.kernel.read(path) == ""


def journal_of(plan: Plan) -> dict[str, str | None]:
    """Return what the journal says after a plan was carried out."""
    return {str(item.path): item.old for item in plan.items if item.op == "write"}


def test_weights_and_costs_that_we_set_come_back_to_what_they_were(machine: Make) -> None:
    for flavour, weight, qos in (
        ("mainline-v2", "io.weight", "io.cost.qos"),
        ("anolis-bvt", "blkio.cost.weight", "blkio.cost.qos"),
    ):
        node = disk(machine(flavour))
        top = node.path("blkio", "", qos)
        place = node.path("blkio", "kubepods/besteffort", weight)
        node.extra |= {top: "", place: "100"}
        wanted = slo(be=blocks(ioWeightPercent=10), root=blocks())
        plan = node.plan(wanted)
        node.extra |= {top: "254:0 enable=1 ctrl=user", place: "254:0 10"}
        off = node.plan({}, journal=journal_of(plan))
        assert list(writes(off, weight).values()) == ["254:0 default"]
        assert list(writes(off, qos).values()) == ["254:0 enable=0"]
        assert node.plan({}).items == ()  # without a write of ours they are somebody else's


def test_what_the_policy_names_no_more_is_given_back_line_by_line(machine: Make) -> None:
    node = disk(machine("mainline-v2"))
    node.kernel.devices = ("254:0", "254:16", "254:32")
    node.extra["sys/class/block/vdb/dev"] = "254:16\n"
    node.write("blkio", "kubepods/besteffort", "io.max", "254:0 wiops=7")
    node.write("blkio", "kubepods/besteffort", "io.max", "254:32 rbps=9")
    second = {"name": "vdb", "ioCfg": {"readBPS": 4096}}
    first = blocks(readBPS=1 << 20, writeIOPS=5)["blocks"][0]
    plan = node.enforce(slo(be={"enable": True, "blocks": [first, second]}))
    journal = {node.path("blkio", "kubepods/besteffort", "io.max"): plan.items[0].old}
    node.enforce(slo(be=blocks(readBPS=1 << 20)), journal=journal)
    lines = node.read("blkio", "kubepods/besteffort", "io.max").splitlines()
    assert lines == ["254:0 rbps=1048576 wbps=max riops=max wiops=7", "254:32 rbps=9 wbps=max riops=max wiops=max"]
    node.enforce({}, journal=journal)
    lines = node.read("blkio", "kubepods/besteffort", "io.max").splitlines()
    assert lines == ["254:0 rbps=max wbps=max riops=max wiops=7", "254:32 rbps=9 wbps=max riops=max wiops=max"]


def test_a_pod_on_its_way_out_keeps_its_limits(machine: Make) -> None:
    node = disk(machine())
    group = node.pod("a", "BestEffort", "BE")
    plan = node.enforce(slo(be=blocks(readBPS=1 << 20)))
    node.listed[0]["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    path = node.path("blkio", group, "blkio.throttle.read_bps_device")
    again = node.plan(slo(be=blocks(readBPS=1 << 20)), journal=journal_of(plan))
    assert (path in journal_of(plan), again.items) == (True, ())


def test_an_annotation_gets_no_value_past_its_range(machine: Make) -> None:
    node = disk(machine())
    wrong = blocks(writeBPS="-1", readBPS=4096)
    group = node.pod("a", "Burstable", "LS", annotations={"koordinator.sh/blkioQOS": wrong})
    plan = node.plan({})
    assert not writes(plan, "blkio.throttle.write_bps_device")
    assert writes(plan, "blkio.throttle.read_bps_device")[f"sys/fs/cgroup/blkio/{group}"] == "254:0 4096"
    assert any("writeBPS: -1 is not within 0.." in notice for notice in plan.notices)
