"""The node's contract as a stranger reads it: command lines on trees of plain files, nothing from inside."""

import json
import os
import pathlib
import shutil
import subprocess
from typing import Any

import pytest
from tests.contracts.console import command
from tests.contracts.node_tree import Commands, Node, pod, slo
from tests.contracts.node_tree import identity as identities

pytestmark = pytest.mark.slow

FAMILIES = {
    "openeuler": (False, "openeuler-qos-level", "cpu.qos_level", {2: "0", -1: "-1"}),
    "anolis-bvt": (False, "anolis-bvt", "cpu.bvt_warp_ns", {2: "2", -1: "-1"}),
    "both": (True, "anolis-bvt", "cpu.bvt_warp_ns", {2: "2", -1: "-1"}),
    "anolis-priority": (True, "anolis-priority", "cpu.priority", {2: "1", -1: "-1"}),
    "tencent": (False, "tencent-offline", "cpu.offline", {2: "0", -1: "1"}),
    "mainline": (True, "mainline-idle", "cpu.idle", {2: "0", -1: "1"}),
}


@pytest.mark.parametrize("systemd", [False, True], ids=["cgroupfs", "systemd"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_from_check_to_restore(cotenant: Commands, place: pathlib.Path, family: str, systemd: bool) -> None:
    v2, name, file, values = FAMILIES[family]
    node = Node(place, family, v2=v2, systemd=systemd)  # nothing says CPUs or memory: identities need neither
    offline, online = node.run_pod(pod("be", "BE")), node.run_pod(pod("ls", "LS", "Burstable", requests={"cpu": "1"}))
    before = node.content()
    assert cotenant.check(node)[1]["priority_interface"]["name"] == name
    status, planned, _ = cotenant.enforce(node, [offline, online], identities(), "--dry-run")
    assert (status, node.content()) == (0, before)
    status, done, err = cotenant.enforce(node, [offline, online], identities())
    assert done == planned
    assert status == (3 if family == "openeuler" else 0), err
    assert node.cpu(node.pod_path(offline), file) == values[-1]
    assert node.cpu(node.pod_path(online), file) == values[2]
    order = [item["path"] for item in done if "uid" in item["path"]]
    assert order.index(f"{node.mount}/{node.pod_path(offline)}/{file}") == min(
        n for n, path in enumerate(order) if f"/{node.pod_path(offline).rpartition('/')[2]}/" in path
    )
    assert cotenant.enforce(node, [offline, online], identities())[:2] == (0, [])
    status, report, _ = cotenant.restore(node)
    if family == "openeuler":
        assert status == 3
        assert {left["path"] for left in report["irreversible"]} == {item["path"] for item in done}
    else:
        assert (status, node.content()) == (0, before)


@pytest.mark.parametrize("mount", ["cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"])
def test_the_controller_is_found_where_it_is_mounted(cotenant: Commands, place: pathlib.Path, mount: str) -> None:
    node = Node(place, "openeuler", mount=mount)
    cotenant.enforce(node, [node.run_pod(pod("be", "BE"))], identities())
    assert node.cpu("kubepods/besteffort/poduid-be", "cpu.qos_level") == "-1"


def test_only_an_explicit_offline_class_gets_a_level_that_sticks(cotenant: Commands, place: pathlib.Path) -> None:
    node = Node(place, "openeuler")
    minus = {"koordinator.sh/cpuQOS": '{"enable": true, "groupIdentity": -1}'}
    pods = [
        node.run_pod(each)
        for each in (
            pod("plain", None),
            pod("annotated", "LS", "Burstable", annotations=minus),
            pod("dns", "BE", namespace="kube-system"),
            pod("critical", "BE", priority=2_000_001_000),
            pod("native", "BE", "Burstable", requests={"cpu": "1"}),
        )
    ]
    node.group("kubepods/besteffort/poddangling")
    _, plan, err = cotenant.enforce(node, pods, identities())
    assert {item["path"].split("/")[-2] for item in plan} == {"poduid-native", "native-c"}
    assert all(item["irreversible"] for item in plan)
    assert "default/annotated" in err


@pytest.mark.parametrize("family", ["anolis-bvt", "anolis-priority", "tencent"])
def test_qos_directories_carry_their_class_where_it_can_be_put_back(
    cotenant: Commands, place: pathlib.Path, family: str
) -> None:
    node = Node(place, family)
    _, _, file, values = FAMILIES[family]
    cotenant.enforce(node, [], identities())
    found = [node.cpu(path, file) for path in node.qos_directories().values()]
    assert found == ["0", values[2], values[-1]]


@pytest.mark.parametrize(("family", "v2"), [("openeuler", False), ("mainline", True), ("mainline", False)])
def test_no_qos_directory_is_touched_where_that_would_hurt(
    cotenant: Commands, place: pathlib.Path, family: str, v2: bool
) -> None:
    node = Node(place, family, v2=v2)
    assert cotenant.enforce(node, [], identities())[:2] == (0, [])


def test_anolis_switches_core_scheduling_off_before_identity_on(cotenant: Commands, place: pathlib.Path) -> None:
    node = Node(place, "anolis-bvt")
    node.file("proc/sys/kernel/sched_core", "1")
    node.file("proc/sys/kernel/sched_group_identity_enabled", "0")
    before = node.content()
    _, plan, _ = cotenant.enforce(node, [node.run_pod(pod("be", "BE"))], identities())
    assert [(item["path"].rpartition("/")[2], item["new"]) for item in plan[:2]] == [
        ("sched_core", "0"),
        ("sched_group_identity_enabled", "1"),
    ]
    assert cotenant.restore(node)[0] == 0
    assert {name: node.content()[name] for name in before} == before


def test_what_is_off_is_released_only_where_we_wrote(cotenant: Commands, place: pathlib.Path) -> None:
    node = Node(place, "anolis-bvt").describe()
    node.file("sys/fs/cgroup/cpu/kubepods/burstable/cpu.bvt_warp_ns", "2")  # somebody else's
    pods = [node.run_pod(pod("be", "BE"))]
    threshold = {"enable": True, "cpuSuppressPolicy": "cfsQuota"}
    usage = {"node": {"cpu_millicores": 1200}, "system": {"cpu_millicores": 1200}, "pods": {}}
    assert cotenant.enforce(node, pods, identities(on=False))[1] == []
    cotenant.enforce(node, pods, identities(resourceUsedThresholdWithBE=threshold), usage=usage)
    assert node.cpu("kubepods/besteffort", "cpu.cfs_quota_us") == "400000"
    off = identities(on=False, resourceUsedThresholdWithBE={"enable": False})
    _, plan, _ = cotenant.enforce(node, pods, off, usage=usage)
    assert {item["new"] for item in plan} == {"0", "-1"}
    assert node.cpu("kubepods/burstable", "cpu.bvt_warp_ns") == "2"
    assert cotenant.enforce(node, pods, off, usage=usage)[1] == []


def test_without_a_topology_object_the_pools_are_the_trees_cpus(cotenant: Commands, place: pathlib.Path) -> None:
    node = Node(place, "mainline").describe()
    own = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "0-1"}'}
    exclusive = node.run_pod(pod("lsr", "LSR", "Guaranteed", annotations=own, limits={"cpu": "2"}))
    shared = node.run_pod(pod("ls", "LS", "Burstable", requests={"cpu": "1"}))
    cotenant.enforce(node, [exclusive, shared], slo())
    assert (node.cpus(node.container_path(exclusive)), node.cpus(node.container_path(shared))) == ("0-1", "2-7")
    cotenant.enforce(node, [shared], slo())  # the exclusive pod has left
    assert node.cpus(node.container_path(shared)) == "0-7"


@pytest.mark.parametrize(
    ("request_mib", "limit_mib", "percent", "high"),
    [(1024, 2048, 80, 1932734464), (1024, 1024, 80, 1073741824), (None, 512, 50, 268435456), (100, 333, 77, 292978688)],
)
def test_memory_high_by_the_worked_values(
    cotenant: Commands, place: pathlib.Path, request_mib: int | None, limit_mib: int, percent: int, high: int
) -> None:
    node = Node(place, "mainline", v2=True).describe()
    requests = {"memory": f"{request_mib}Mi"} if request_mib else {}
    one = node.run_pod(pod("ls", "LS", "Burstable", requests=requests, limits={"memory": f"{limit_mib}Mi"}))
    qos = {"lsClass": {"memoryQOS": {"enable": True, "throttlingPercent": percent}}}
    cotenant.enforce(node, [one], slo(resourceQOSStrategy=qos))
    assert node.cpu(node.container_path(one), "memory.high") == str(high)


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize(
    ("cpus", "target", "old", "count"), [(104, 500, 50, 2), (8, 2500, 8, 3), (4, 3999, 2, 3), (96, 41001, 40, 42)]
)
def test_suppression_by_cpu_set_by_the_worked_values(
    cotenant: Commands, place: pathlib.Path, v2: bool, cpus: int, target: int, old: int, count: int
) -> None:
    node = Node(place, "mainline", v2=v2).describe(cpus)
    one = node.run_pod(pod("be", "BE"))
    groups = [node.qos_directories()["BestEffort"], node.pod_path(one), node.container_path(one)]
    for group in groups:
        node.file(f"{node.mount if v2 else 'sys/fs/cgroup/cpuset'}/{group}/cpuset.cpus", f"0-{old - 1}")
    used = cpus * 1000 - target
    usage = {"node": {"cpu_millicores": used}, "system": {"cpu_millicores": used}, "pods": {}}
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 100}
    _, plan, _ = cotenant.enforce(node, [one], slo(resourceUsedThresholdWithBE=threshold), usage=usage)
    written = [item["path"].rpartition("/")[0] for item in plan]
    assert {node.cpus(group) for group in groups} == {f"0-{count - 1}"}
    depths = [path.count("/") for path in written]
    if not v2:  # v1 refuses a child that is not within its parent
        assert depths == sorted(depths, reverse=count < old)


@pytest.mark.parametrize(
    ("usage", "status"),
    [
        ({"node": {"cpu_millicores": 100, "memory_bytes": None}, "system": None, "pods": {"default/be": None}}, 0),
        ({"node": {"cpu_millicores": "many"}}, 2),
        ({"node": {"cpu_millicores": -1}}, 2),
        ([], 2),
    ],
)
def test_unknown_usage_is_null(cotenant: Commands, place: pathlib.Path, usage: Any, status: int) -> None:
    node = Node(place, "mainline").describe()
    pods = [node.run_pod(pod("be", "BE"))]
    policy = slo(resourceUsedThresholdWithBE={"enable": True})
    assert cotenant.enforce(node, pods, policy, "--dry-run", usage=usage)[0] == status


@pytest.mark.parametrize("name", ["koordlet", "rubik"])
def test_another_agent_makes_it_observe_only(cotenant: Commands, place: pathlib.Path, name: str) -> None:
    node = Node(place, "anolis-bvt")
    pods = [node.run_pod(pod("be", "BE"))]
    node.file("proc/4711/comm", name)
    before = node.content()
    status, plan, err = cotenant.enforce(node, pods, identities())
    assert (status, bool(plan), node.content()) == (3, True, before)
    assert name in err
    assert cotenant.enforce(node, pods, identities(), "--dry-run")[:2] == (0, plan)
    assert cotenant.enforce(node, pods, identities(), "--beside-others")[:2] == (0, plan)
    assert node.content() != before


def test_a_group_that_the_plan_makes_is_written_and_removed_with_its_files(
    cotenant: Commands, place: pathlib.Path
) -> None:
    node = Node(place, "mainline", v2=True).describe()
    mounts = node.directory / "proc/self/mountinfo"
    mounts.write_text(mounts.read_text() + "40 20 0:40 / /sys/fs/resctrl rw - resctrl resctrl rw\n")
    files = {"schemata": "L3:0=7ff;1=7ff", "tasks": "1", "info/L3/cbm_mask": "7ff", "info/L3/num_closids": "16"}
    for name, text in (files | {"info/L3/min_cbm_bits": "1"}).items():
        node.file(f"sys/fs/resctrl/{name}", text)
    one = node.run_pod(pod("be", "BE"))
    node.file(f"{node.mount}/{node.container_path(one)}/cgroup.threads", "4711")
    before = node.content()
    cat = {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 30}
    status, plan, err = cotenant.enforce(node, [one], slo(resourceQOSStrategy={"beClass": {"resctrlQOS": cat}}))
    assert status == 0, err
    assert [(item["op"], item["path"]) for item in plan[:2]] == [
        ("mkdir", "sys/fs/resctrl/BE"),
        ("write", "sys/fs/resctrl/BE/schemata"),
    ]
    made = node.directory / "sys/fs/resctrl/BE"
    assert (made / "schemata").read_text() == "L3:0=f;1=f\n"
    assert (made / "tasks").read_text() == "4711\n"
    assert cotenant.restore(node)[0] == 0
    assert not made.exists()
    assert node.content() | {"sys/fs/resctrl/tasks": b""} == before | {"sys/fs/resctrl/tasks": b""}


def test_a_disk_limit_settles_and_comes_back(cotenant: Commands, place: pathlib.Path) -> None:
    node = Node(place, "mainline", v2=True).describe()
    node.file(f"{node.mount}/cgroup.controllers", "cpu cpuset io memory")
    file = node.file(f"{node.mount}/{node.qos_directories()['BestEffort']}/io.max", "")
    node.file("sys/class/block/vda/dev", "253:0")

    def limited(**fields: int) -> dict[str, Any]:
        blocks = [{"name": "vda", "type": "device", "ioCfg": fields}]
        return slo(resourceQOSStrategy={"beClass": {"blkioQOS": {"enable": True, "blocks": blocks}}})

    for policy, line in (
        (limited(readBPS=1000, writeIOPS=5), "253:0 rbps=1000 wiops=5"),
        (limited(readBPS=1000), "253:0 rbps=1000 wiops=max"),
        (slo(), "253:0 rbps=max wbps=max riops=max wiops=max"),
    ):
        assert len(cotenant.enforce(node, [], policy)[1]) == 1
        assert file.read_text().strip() == line
        assert cotenant.enforce(node, [], policy)[1] == []
    assert cotenant.restore(node)[0] == 0
    assert file.read_text() == "\n"


def test_values_of_another_boot_are_named_once_and_never_applied(cotenant: Commands, place: pathlib.Path) -> None:
    node = Node(place, "anolis-bvt")
    boot = node.file("proc/sys/kernel/random/boot_id", "one")
    cotenant.enforce(node, [node.run_pod(pod("be", "BE"))], identities())
    boot.write_text("two\n")
    before = node.content()
    status, report, _ = cotenant.restore(node)
    assert (status, len(report["stale"]) > 0, node.content()) == (3, True, before)
    assert cotenant.restore(node)[0] == 0


def test_a_group_that_was_made_again_is_not_written(cotenant: Commands, place: pathlib.Path) -> None:
    node = Node(place, "anolis-bvt")
    one = node.run_pod(pod("be", "BE"))
    cotenant.enforce(node, [one], identities())
    group = node.directory / node.mount / node.pod_path(one)
    group.rename(group.with_name("kept"))  # so that the new one has an inode of its own
    node.run_pod(one, **{"cpu.bvt_warp_ns": "-1"})
    shutil.rmtree(group.with_name("kept"))
    status, report, _ = cotenant.restore(node)
    assert status == 3
    assert {left["reason"] for left in report["stale"]} == {"another group has this name now"}
    assert node.cpu(node.pod_path(one), "cpu.bvt_warp_ns") == "-1"


def test_a_file_of_ours_gets_its_old_bytes_back_whoever_wrote_since(cotenant: Commands, place: pathlib.Path) -> None:
    node = Node(place, "anolis-bvt")
    one = node.run_pod(pod("be", "BE"))
    before = node.content()
    cotenant.enforce(node, [one], identities())
    node.file(f"{node.mount}/{node.pod_path(one)}/cpu.bvt_warp_ns", "1")
    assert cotenant.restore(node)[0] == 0
    assert node.content() == before


@pytest.mark.parametrize(
    ("pods", "status"),
    [
        ({"kind": "PodList"}, 0),
        ({"kind": "PodList", "items": None}, 0),
        ({"kind": "PodList", "items": [{"metadata": {"name": "a", "uid": "u"}, "spec": None, "status": None}]}, 0),
        ({"kind": "NodeList", "items": []}, 2),
        ({}, 2),
        ([], 2),
        ({"kind": "PodList", "items": [{}]}, 2),
        ({"kind": "PodList", "items": [pod("a", "BE", requests={"cpu": "many"})]}, 2),
    ],
)
def test_null_is_absent_and_what_is_wrong_is_one_line(
    cotenant: Commands, place: pathlib.Path, tmp_path: pathlib.Path, pods: Any, status: int
) -> None:
    node = Node(place, "mainline")
    files = {"pods": pods, "slo": slo()}
    for name, value in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    words = [word for name in files for word in (f"--{name}", str(tmp_path / f"{name}.json"))]
    found, _, err = cotenant.run("enforce", "--once", "--dry-run", "--root", str(node.directory), *words)
    assert found == status, err
    if status == 2:
        assert len(err.splitlines()) == 1
        assert "pods.json" in err


@pytest.mark.parametrize("name", ["node_object", "nrt"])
def test_another_kind_in_place_of_what_was_asked_for_is_refused(
    cotenant: Commands, place: pathlib.Path, name: str
) -> None:
    status, _, err = cotenant.enforce(Node(place, "mainline"), [], slo(), **{name: {"kind": "Pod", "metadata": {}}})
    assert (status, len(err.splitlines())) == (2, 1)
    assert "kind is Pod" in err


def test_a_word_that_means_nothing_is_named(cotenant: Commands, place: pathlib.Path) -> None:
    strange = slo(
        resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cpusets"},
        cpuBurstStrategy={"policy": "Auto"},
    )
    err = cotenant.enforce(Node(place, "mainline").describe(), [], strange, "--dry-run")[2]
    assert "spec.resourceUsedThresholdWithBE.cpuSuppressPolicy: 'cpusets' is none of cpuset, cfsQuota" in err
    assert "spec.cpuBurstStrategy.policy: 'Auto' is none of none, cpuBurstOnly" in err


@pytest.mark.parametrize("end", [b"", b"\r\n", b" \n", b"\n\n"], ids=["none", "crlf", "blank", "two"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_plan_hangs_on_no_end_of_line(cotenant: Commands, place: pathlib.Path, family: str, end: bytes) -> None:
    node = Node(place, family, v2=FAMILIES[family][0])
    pods = [node.run_pod(pod("be", "BE")), node.run_pod(pod("ls", "LS", "Burstable", requests={"cpu": "1"}))]
    _, usual, said = cotenant.enforce(node, pods, identities(), "--dry-run")
    for path in (place / node.mount).rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().rstrip(b"\n") + end)
    status, plan, err = cotenant.enforce(node, pods, identities(), "--dry-run")
    assert (status, err) == (0, said)
    assert [(item["path"], item["new"]) for item in plan] == [(item["path"], item["new"]) for item in usual]


def test_what_is_done_hangs_on_no_reader(tmp_path: pathlib.Path, place: pathlib.Path) -> None:
    node = Node(place, "openeuler")
    offline = node.run_pod(pod("be", "BE"))
    before = node.content()
    for option, value in {"pods": {"kind": "PodList", "items": [offline]}, "slo": identities()}.items():
        (tmp_path / f"{option}.json").write_text(json.dumps(value))
    words = ["--root", str(place)]
    inputs = ["enforce", "--once", *words, "--pods", str(tmp_path / "pods.json"), "--slo", str(tmp_path / "slo.json")]
    with open("/dev/full", "w") as full:
        assert subprocess.run(command(*inputs), stdout=full, stderr=subprocess.DEVNULL).returncode == 2
    assert node.content() == before  # a plan that cannot be told is not carried out
    reading, writing = os.pipe()
    os.close(reading)
    assert subprocess.run(command(*inputs), stdout=writing, stderr=writing).returncode == 3
    assert node.cpu(node.pod_path(offline), "cpu.qos_level") == "-1"
    assert subprocess.run(command("restore", *words), stdout=writing, stderr=writing).returncode == 3
    os.close(writing)


def test_a_directory_that_is_no_tree_is_refused(cotenant: Commands, tmp_path: pathlib.Path) -> None:
    node = Node(tmp_path / "root", "mainline")
    node.directory = tmp_path / "nowhere"
    status, _, err = cotenant.enforce(node, [], slo())
    assert (status, len(err.splitlines())) == (2, 1)


def test_workloads_with_identity_1_and_without_enable_are_listed_apart(
    cotenant: Commands, place: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    def annotated(name: str, text: str) -> dict[str, Any]:
        return pod(name, "LS", "Burstable", annotations={"koordinator.sh/cpuQOS": text})

    pods = [annotated("one", '{"enable": true, "groupIdentity": 1}'), annotated("loose", '{"groupIdentity": 1}')]
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"kind": "PodList", "items": pods}))
    found = cotenant.check(Node(place, "openeuler"), "--workloads", str(file))[1]["workloads"]
    assert found == {"identity_1": ["default/one"], "without_enable": ["default/loose"]}
