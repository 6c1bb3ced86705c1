import os
import shutil

import pytest

from cotenant.kernel import sampler, tracing
from cotenant.kernel.cgroup import classes, reader
from cotenant.model import sample as samples
from cotenant.units.clock import ManualClock
from cotenant.units.histogram import Histogram

HEX = "0123456789abcdef" * 4
V2_LS = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
V2_BE = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podaaaaaaaa_bbbb_cccc_dddd_eeeeeeeeeeee.slice"
V2_LS_CONTAINER = f"{V2_LS}/cri-containerd-{HEX}.scope"
V1_LS = "kubepods/burstable/pod11111111-2222-3333-4444-555555555555"
V1_BE = "kubepods/besteffort/podaaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
V1_LS_CONTAINER = f"{V1_LS}/{HEX}"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"


class Machine:
    """A tree with a primed sampler on it."""

    def __init__(self, tree, *matches, tracer="no_bpf"):
        self.clock = ManualClock()
        parsed = [classes.Match.parse(match) for match in matches]
        self.sampler = sampler.Sampler(tree.root, clock=self.clock, matches=parsed, tracer=tracer)
        self.sampler.prime()

    def sample(self, seconds=2.0):
        self.clock.advance(seconds)
        return self.sampler.sample()

    def groups(self, seconds=2.0):
        return {group.path: group for group in self.sample(seconds).cgroups}


def test_the_groups_of_a_v2_node_are_found(v2):
    paths = [group.path for group in Machine(v2).sample().cgroups]
    assert set(paths) == {
        "init.scope",
        "system.slice",
        "system.slice/nginx.service",
        "system.slice/kubelet.service",
        "user.slice",
        "user.slice/user-1000.slice",
        "user.slice/user-1000.slice/session-1.scope",
        "kubepods.slice",
        "kubepods.slice/kubepods-burstable.slice",
        "kubepods.slice/kubepods-besteffort.slice",
        V2_LS,
        V2_BE,
        V2_LS_CONTAINER,
        next(path for path in paths if path.startswith(f"{V2_BE}/")),
    }


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"bytes-\xff\xfe", r"bytes-\xff\xfe"),
        (b"colour-\x1b[31m", r"colour-\x1b[31m"),
        ("turned-\u202e".encode(), r"turned-\xe2\x80\xae"),
        (rb"dev-disk\x2dby", r"dev-disk\x2dby"),
        ("größe <b>'\"".encode(), "größe <b>'\""),
    ],
)
def test_any_name_that_the_kernel_takes_can_be_sent_and_shown(v2, name, shown):
    os.mkdir(os.fsencode(v2.directory / "sys/fs/cgroup") + b"/" + name)
    sample = Machine(v2, f"{os.fsdecode(name)}=BE").sample()
    assert [(group.path, group.name) for group in sample.cgroups if group.class_ == "offline"] == [(shown, shown)]
    assert samples.decode(samples.encode(sample)) == sample


def test_a_v2_group_is_measured(v2):
    machine = Machine(v2, "system.slice/nginx.service=LS")
    group = "sys/fs/cgroup/system.slice/nginx.service"
    v2.write(f"{group}/cpu.stat", "usage_usec 2001000\nuser_usec 1\nsystem_usec 1\nnr_periods 20\nnr_throttled 5\n")
    v2.write(f"{group}/memory.current", "12345\n")
    v2.write(f"{group}/memory.stat", "anon 1\nworkingset_refault_anon 4\nworkingset_refault_file 9\npgmajfault 22\n")
    v2.write(f"{group}/io.stat", "8:0 rbytes=8192 wbytes=28192 rios=1 wios=2\n253:0 rbytes=999999999 wbytes=9\n")
    v2.write(f"{group}/io.pressure", PRESSURE.format(3000 + 500_000, 700 + 100_000))
    nginx = machine.groups()["system.slice/nginx.service"]
    assert (nginx.class_, nginx.name) == ("online", "system.slice/nginx.service")
    assert nginx.cpu_used_ratio == 2.0 / 2.0 / 4
    assert (nginx.throttled_ratio, nginx.memory_bytes) == (0.25, 12345)
    assert (nginx.refault_per_sec, nginx.major_fault_per_sec) == (5.0, 10.0)
    assert (nginx.read_bytes_per_sec, nginx.write_bytes_per_sec) == (
        2048.0,
        10000.0,
    )  # not counted again on the dm device
    assert (nginx.psi.io_some_ratio, nginx.psi.io_full_ratio, nginx.psi.cpu_some_ratio) == (0.25, 0.05, 0.0)


def test_a_v1_group_is_measured(v1):
    machine = Machine(v1, f"{V1_LS}=LSR")
    cpu = f"sys/fs/cgroup/cpu,cpuacct/{V1_LS_CONTAINER}"
    v1.write(f"{cpu}/cpuacct.usage", f"{1_000_000 + 4_000_000_000}\n")
    v1.write(f"{cpu}/cpu.stat", "nr_periods 30\nnr_throttled 11\nthrottled_time 5\n")
    v1.write(f"{cpu}/memory.pressure", PRESSURE.format(2000 + 200_000, 500))
    v1.replace(f"sys/fs/cgroup/memory/{V1_LS_CONTAINER}/memory.stat", "refault_file 6", "refault_file 16")
    v1.replace(
        f"sys/fs/cgroup/blkio/{V1_LS_CONTAINER}/blkio.throttle.io_service_bytes_recursive",
        "8:0 Read 4096",
        "8:0 Read 6096",
    )
    v1.replace("proc/101/io", "\nwrite_bytes: 4096", "\nwrite_bytes: 14096")
    v1.replace("proc/102/io", "\nwrite_bytes: 4096", "\nwrite_bytes: 6096")
    groups = machine.groups()
    group = groups[V1_LS_CONTAINER]
    assert (group.class_, group.cpu_used_ratio, group.throttled_ratio) == ("online", 0.5, 0.5)
    assert (group.memory_bytes, group.refault_per_sec, group.major_fault_per_sec) == (1048576, 5.0, 0.0)
    assert group.read_bytes_per_sec == 1000.0
    assert group.write_bytes_per_sec == 6000.0  # by the tasks' own accounts: kernel threads wrote it back
    assert groups[V1_LS].write_bytes_per_sec == groups["kubepods"].write_bytes_per_sec == 6000.0
    assert groups[V1_BE].write_bytes_per_sec == 0.0
    assert (group.psi.memory_some_ratio, group.psi.memory_full_ratio) == (0.1, 0.0)
    assert groups[V1_LS].psi.memory_some_ratio is None


@pytest.mark.parametrize("live", [False, True])
def test_processes_right_in_a_pod_are_found_within_ten_periods_of_a_live_kernel(v1, monkeypatch, live):
    machine = Machine(v1)
    monkeypatch.setattr(machine.sampler._cgroups, "_live", live)
    machine.groups()
    pod, container = (f"sys/fs/cgroup/blkio/{path}/cgroup.procs" for path in (V1_LS, V1_LS_CONTAINER))
    v1.write(container, "101\n")
    v1.write(pod, "102\n")
    for period in range(reader.INNER_RESTS + 1 if live else 2):
        v1.write("proc/101/io", f"write_bytes: {(period + 1) * 20_000}\ncancelled_write_bytes: 0\n")
        v1.write("proc/102/io", f"write_bytes: {(period + 1) * 40_000}\ncancelled_write_bytes: 0\n")
        found = machine.groups()
    assert found[V1_LS_CONTAINER].write_bytes_per_sec == 10_000.0
    v1.write("proc/102/io", "write_bytes: 900000\ncancelled_write_bytes: 0\n")
    assert (machine.groups()[V1_LS].write_bytes_per_sec or 0.0) > 100_000.0


def test_direct_writes_count_where_tasks_have_gone(v1):
    machine = Machine(v1)
    shutil.rmtree(v1.directory / "proc/201")
    file = f"sys/fs/cgroup/blkio/{V1_BE}/blkio.throttle.io_service_bytes_recursive"
    v1.replace(file, "8:0 Write 8192", "8:0 Write 10192")
    assert machine.groups()[V1_BE].write_bytes_per_sec == 1000.0


def test_a_class_is_its_worst_group_and_the_sum_of_its_cpu(v2):
    machine = Machine(v2, f"{V2_LS}=LS", "system.slice/nginx.service=LS", f"{V2_BE}=BE")
    for path, usec in {V2_LS: 1_600_000, V2_LS_CONTAINER: 1_500_000, "system.slice/nginx.service": 800_000}.items():
        v2.replace(f"sys/fs/cgroup/{path}/cpu.stat", "usage_usec 1000\n", f"usage_usec {1000 + usec}\n")
    v2.replace(f"sys/fs/cgroup/{V2_BE}/cpu.stat", "usage_usec 1000\n", "usage_usec 4001000\n")
    v2.write(f"sys/fs/cgroup/{V2_LS_CONTAINER}/memory.pressure", PRESSURE.format(2000 + 100_000, 500 + 60_000))
    v2.write("sys/fs/cgroup/system.slice/nginx.service/memory.pressure", PRESSURE.format(2000 + 400_000, 500))
    sample = machine.sample()
    assert sample.online.cpu_used_ratio == pytest.approx(2.4 / 2 / 4)  # the container is in its pod already
    assert (sample.online.psi.memory_some_ratio, sample.online.psi.memory_full_ratio) == (0.2, 0.03)
    assert sample.offline.cpu_used_ratio == 0.5
    assert sample.missing["online.block_p99_usec"] == "no_bpf"
    assert sample.missing["cgroups.class"] == "no_class"


def test_without_any_class_the_classes_are_unknown(v2):
    sample = Machine(v2).sample()
    assert sample.missing["online"] == sample.missing["offline"] == "no_class"
    assert sample.online.cpu_used_ratio is None


def test_labels_from_outside_name_and_class_pods(v2):
    machine = Machine(v2)
    machine.sampler.label({V2_BE: classes.Label("offline", "batch/sort-1")})
    groups = machine.groups()
    assert (groups[V2_BE].class_, groups[V2_BE].name) == ("offline", "batch/sort-1")
    assert {group.class_ for path, group in groups.items() if path.startswith(f"{V2_BE}/")} == {"offline"}


def test_a_group_that_goes_is_left_out_and_one_that_comes_has_no_spike(v2):
    machine = Machine(v2)
    shutil.rmtree(v2.directory / "sys/fs/cgroup/system.slice/nginx.service")
    shutil.copytree(
        v2.directory / "sys/fs/cgroup/system.slice/kubelet.service",
        v2.directory / "sys/fs/cgroup/system.slice/new.service",
    )
    groups = machine.groups()
    assert "system.slice/nginx.service" not in groups
    assert groups["system.slice/new.service"].cpu_used_ratio is None
    assert machine.groups()["system.slice/new.service"].cpu_used_ratio == 0.0


def test_a_group_made_anew_between_two_reads_is_a_reset(v2):
    machine = Machine(v2)
    v2.write("sys/fs/cgroup/system.slice/nginx.service/cpu.stat", "usage_usec 5\n")
    sample = machine.sample()
    nginx = next(group for group in sample.cgroups if group.path == "system.slice/nginx.service")
    assert nginx.cpu_used_ratio is None
    assert sample.missing["cgroups.cpu_used_ratio"] == "reset"


@pytest.mark.parametrize(
    ("file", "text", "field", "reason"),
    [
        ("cpu.stat", "usage_usec x\n", "cpu_used_ratio", "malformed"),
        ("cpu.stat", "", "cpu_used_ratio", "malformed"),
        ("memory.current", "max\n", "memory_bytes", "malformed"),
        ("memory.stat", "pgmajfault -\n", "major_fault_per_sec", "malformed"),
        ("io.stat", "what is this", "read_bytes_per_sec", "malformed"),
        ("io.stat", "8:0 rbytes=x wbytes=1\n", "write_bytes_per_sec", "malformed"),
        ("io.pressure", "some\n", "psi.io_some_ratio", "malformed"),
        ("io.pressure", None, "psi.io_some_ratio", "gone"),
        ("io.stat", None, "read_bytes_per_sec", "gone"),
    ],
)
def test_a_bad_file_makes_its_fields_unknown(v2, file, text, field, reason):
    machine = Machine(v2)
    path = f"sys/fs/cgroup/system.slice/nginx.service/{file}"
    v2.remove(path)
    if text is not None:
        v2.write(path, text)
    machine.sampler._cgroups._groups["system.slice/nginx.service"].files.close()
    sample = machine.sample()
    assert sample.missing[f"cgroups.{field}"] == reason
    assert "system.slice/nginx.service" in {group.path for group in sample.cgroups}


def test_a_hybrid_takes_pressure_of_its_v2_tree_once_tasks_are_there(v1):
    mountinfo = v1.read("proc/self/mountinfo")
    v1.write("proc/self/mountinfo", mountinfo + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
    group = f"sys/fs/cgroup/unified/{V1_BE}"
    v1.write(f"{group}/cgroup.events", "populated 0\nfrozen 0\n")
    for name in ("cpu", "memory", "io"):
        v1.write(f"{group}/{name}.pressure", PRESSURE.format(0, 0))
    machine = Machine(v1)
    assert machine.groups()[V1_BE].psi.io_some_ratio is None
    v1.write(f"{group}/cgroup.events", "populated 1\nfrozen 0\n")
    machine.sample()
    v1.write(f"{group}/io.pressure", PRESSURE.format(500_000, 0))
    assert machine.groups()[V1_BE].psi.io_some_ratio == 0.25


class Traced:
    """A tracer that saw latencies of these groups."""

    def __init__(self, groups):
        self.groups = groups

    def read(self):
        return tracing.Trace({}, Histogram(), self.groups, self.groups)

    def close(self):
        pass


def test_latencies_of_a_container_are_its_pods_too(v2):
    inner = v2.directory / "sys/fs/cgroup" / V2_LS_CONTAINER / "worker"
    inner.mkdir()
    inode = inner.stat().st_ino
    seen = tracing.GroupTrace(block=Histogram.of([3000.0]), run_queue=Histogram.of([50.0]))
    sample = Machine(v2, f"{V2_LS}=LS", tracer=Traced({inode: seen})).sample()
    groups = {group.path: group for group in sample.cgroups}
    for path in (V2_LS_CONTAINER, V2_LS, "kubepods.slice"):
        assert groups[path].block_p99_usec == pytest.approx(3000, rel=0.05)
        assert groups[path].run_queue_latency_p99_usec == pytest.approx(50, rel=0.05)
    assert groups["system.slice"].block_p99_usec is None
    assert sample.online.block_p99_usec == pytest.approx(3000, rel=0.05)


def test_a_new_group_is_looked_up_when_the_tracer_names_it(v2):
    tracer = Traced({})
    machine = Machine(v2, tracer=tracer)
    inode = (v2.directory / "sys/fs/cgroup/system.slice/nginx.service").stat().st_ino
    tracer.groups = {inode: tracing.GroupTrace(run_queue=Histogram.of([50.0])), 1 << 60: tracing.GroupTrace()}
    assert machine.groups()["system.slice/nginx.service"].run_queue_latency_p99_usec is not None
