"""``cotenant sample --root`` on trees made by hand, that change between two reads or hold what no kernel writes."""

import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.contracts.console import command, cotenant

pytestmark = pytest.mark.slow

STALL = "{} avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
GROUP = "system.slice/web.service"
PERIOD = "300ms"
LINES = 40
"""More samples than any machine needs to show a change, however late it is."""


def _pressure(some: int, full: int) -> str:
    return STALL.format("some", some) + STALL.format("full", full)


def _machine(k: int = 0) -> dict[str, str]:
    """Return the files of a machine with two CPUs and one disk whose every counter has grown k times."""
    cpu = " ".join(
        str(base + k * grown) for base, grown in zip([9] * 8, [200, 40, 100, 500, 50, 10, 20, 40], strict=True)
    )
    disk = f"8 0 sda {40 * k} 0 {800 * k} 7 {60 * k} 0 {4000 * k} 9 3 0 0"
    vmstat = {
        "pgscan_kswapd": 4000,
        "pgscan_direct": 800,
        "pgscan_direct_throttle": 7,
        "workingset_refault_anon": 40,
        "workingset_refault_file": 400,
        "pgmajfault": 80,
        "pswpin": 12,
        "pswpout": 16,
        "oom_kill": 2,
    }
    return {
        "proc/stat": f"cpu  {cpu} 0 0\ncpu0 {cpu} 0 0\ncpu1 {cpu} 0 0\nintr {4000 * k} 1\nsoftirq {2000 * k} 1\n",
        "proc/meminfo": f"MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: {700 - k} kB\n",
        "proc/vmstat": "".join(f"{name} {k * grown}\n" for name, grown in vmstat.items()),
        "proc/diskstats": f"{disk}\n8 1 sda1{disk[7:]}\n7 0 loop0{disk[7:]}\n253 0 dm-0{disk[7:]}\n",
        "proc/pressure/cpu": STALL.format("some", 40_000 * k),
        "proc/pressure/memory": _pressure(20_000 * k, 10_000 * k),
        "proc/pressure/io": _pressure(30_000 * k, 5_000 * k),
        "proc/net/softnet_stat": f"00000010 {4 * k:08x} {8 * k:08x}{' 00000000' * 8}\n" * 2,
        "proc/net/dev": f"Inter-|\n face |\n  eth0: 1 1 0 {12 * k} 0 0 0 0 1 1 0 {4 * k} 0 0 0 0\n",
        "proc/sys/kernel/hostname": "tree\n",
        "proc/sys/kernel/random/boot_id": "b1\n",
        "sys/block/sda/queue/rotational": "0\n",
    }


def _v2_group(k: int) -> dict[str, str]:
    files = {
        "cpu.stat": f"usage_usec {80_000 * k}\nnr_periods {40 * k}\nnr_throttled {10 * k}\n",
        "memory.current": f"{5000 + k}\n",
        "io.stat": f"8:0 rbytes={4096 * k} wbytes={8192 * k}\n253:0 rbytes={9 * k} wbytes={9 * k}\n",
        "cpu.pressure": _pressure(40_000 * k, 0),
        "memory.pressure": _pressure(20_000 * k, 10_000 * k),
        "io.pressure": _pressure(30_000 * k, 0),
    }
    return {f"sys/fs/cgroup/{GROUP}/{name}": text for name, text in files.items()} | {
        "sys/fs/cgroup/cgroup.controllers": "cpu io memory\n",
        "proc/self/mountinfo": "30 1 0:20 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    }


def _v1_group(k: int) -> dict[str, str]:
    top = "sys/fs/cgroup"
    mounts = "".join(
        f"{number} 1 0:{number} / /{top}/{name} rw - cgroup cgroup rw,{name}\n"
        for number, name in enumerate(("cpu,cpuacct", "memory", "blkio"), 30)
    )
    blkio = f"8:0 Read {4096 * k}\n8:0 Write {8192 * k}\n8:0 Total {12288 * k}\nTotal {12288 * k}\n"
    return {
        f"{top}/cpu,cpuacct/{GROUP}/cpuacct.usage": f"{80_000_000 * k}\n",
        f"{top}/cpu,cpuacct/{GROUP}/cpu.stat": f"nr_periods {40 * k}\nnr_throttled {10 * k}\nthrottled_time 5\n",
        f"{top}/memory/{GROUP}/memory.usage_in_bytes": f"{5000 + k}\n",
        f"{top}/blkio/{GROUP}/blkio.throttle.io_service_bytes": blkio,
        "proc/self/mountinfo": mounts,
    }


def _hybrid_group(k: int) -> dict[str, str]:
    top = "sys/fs/cgroup/unified"
    v2 = {name: text for name, text in _v2_group(k).items() if name.endswith(".pressure")}
    files = {name.replace("sys/fs/cgroup", top): text for name, text in v2.items()} | _v1_group(k)
    files["proc/self/mountinfo"] += f"40 1 0:40 / /{top} rw - cgroup2 cgroup2 rw\n"
    return files


def _write(root: pathlib.Path, files: dict[str, Any], replace: bool = False) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.with_name(f"{path.name}.new") if replace else path
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        if replace:
            target.rename(path)


@pytest.fixture
def watched(tmp_path) -> Iterator[Any]:
    """Give a function that starts ``sample`` on ``tmp_path`` and returns its samples one by one."""
    running: list[subprocess.Popen[str]] = []

    def start(*options: Any) -> Iterator[dict[str, Any]]:
        words = command("sample", "--json", "--root", tmp_path, "--period", PERIOD, "--count", LINES, *options)
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return map(json.loads, running[-1].stdout or ())

    yield start
    for process in running:
        process.kill()
        process.communicate()


def _grown(samples: Iterator[dict[str, Any]], wanted: dict[str, float]) -> None:
    """Assert that the rates and counts of the samples to come add up to these, by name."""
    sums = dict.fromkeys(wanted, 0.0)
    for sample in samples:
        for name in wanted:
            value: Any = sample
            for key in name.split("/"):
                value = value[int(key)] if isinstance(value, list) else value[key]
            assert value is not None, (name, sample["missing"])
            is_rate = not name.endswith(("completions", "oom_kills"))
            sums[name] += value * sample["period_s"] if is_rate else value
        if all(total >= wanted[name] * (1 - 1e-6) for name, total in sums.items()):
            break
    assert sums == pytest.approx(wanted)


NODE = {
    "psi/cpu_some_ratio": 0.04,
    "psi/memory_some_ratio": 0.02,
    "psi/memory_full_ratio": 0.01,
    "psi/io_some_ratio": 0.03,
    "psi/io_full_ratio": 0.005,
    "memory/page_scan_per_sec": 4800,
    "memory/direct_scan_per_sec": 800,
    "memory/refault_per_sec": 440,
    "memory/major_fault_per_sec": 80,
    "memory/swap_in_per_sec": 12,
    "memory/swap_out_per_sec": 16,
    "memory/oom_kills": 2,
    "cpu/interrupts_per_sec": 4000,
    "cpu/softirqs_per_sec": 2000,
    "net/softnet_dropped_per_sec": 8,
    "net/softnet_squeezed_per_sec": 16,
    "net/nic_dropped_per_sec": 16,
    "block/completions": 100,
    "block/devices/sda/read_iops": 40,
    "block/devices/sda/write_iops": 60,
    "block/devices/sda/read_bytes_per_sec": 800 * 512,
    "block/devices/sda/write_bytes_per_sec": 4000 * 512,
}


@pytest.mark.parametrize("replace", [False, True], ids=["rewritten", "renamed over"])
def test_every_counter_is_a_rate_of_what_it_grew(tmp_path, watched, replace: bool) -> None:
    _write(tmp_path, _machine())
    samples = watched()
    first = next(samples)
    assert (first["node"], first["boot_id"], first["cpu"]["online"]) == ("tree", "b1", 2)
    assert first["block"].keys() >= {"source", "completions", "p99_usec", "histogram", "devices"}
    assert (first["block"]["source"], list(first["block"]["devices"])) == ("diskstats", ["sda"])
    _write(tmp_path, _machine(1), replace)
    _grown(samples, NODE)


def test_shares_of_cpu_time_are_of_all_of_it_and_steal_is_apart(tmp_path, watched) -> None:
    _write(tmp_path, _machine())
    samples = watched()
    next(samples)
    _write(tmp_path, {"proc/stat": _machine(1)["proc/stat"]}, replace=True)
    busy = next(sample["cpu"] for sample in samples if sample["cpu"]["used_ratio"])
    assert busy["used_ratio"] == pytest.approx(370 / 960)
    assert busy["user_ratio"] == pytest.approx(240 / 960)
    assert busy["steal_ratio"] == pytest.approx(40 / 960)
    assert busy["iowait_ratio"] == pytest.approx(50 / 960)


def test_what_falls_or_vanishes_is_unknown_with_its_reason(tmp_path, watched) -> None:
    _write(tmp_path, _machine(1))
    samples = watched()
    next(samples)
    _write(tmp_path, {"proc/vmstat": _machine(0)["proc/vmstat"]}, replace=True)
    reset = next(sample for sample in samples if sample["memory"]["page_scan_per_sec"] is None)
    assert reset["missing"]["memory.page_scan_per_sec"] == "reset"
    (tmp_path / "proc/pressure/io").unlink()
    gone = next(sample for sample in samples if sample["psi"]["io_some_ratio"] is None)
    assert gone["missing"]["psi.io_some_ratio"] == "gone"


@pytest.mark.parametrize("group", [_v2_group, _v1_group, _hybrid_group], ids=["v2", "v1", "hybrid"])
def test_an_online_group_on_every_kind_of_hierarchy(tmp_path, watched, group: Any) -> None:
    _write(tmp_path, _machine() | group(0))
    samples = watched("--match", f"{GROUP}=LS")
    paths = [one["path"] for one in next(samples)["cgroups"]]
    at = f"cgroups/{paths.index(GROUP)}"
    _write(tmp_path, group(1), replace=True)
    wanted = {
        f"{at}/cpu_used_ratio": 0.04,
        f"{at}/read_bytes_per_sec": 4096,
        f"{at}/write_bytes_per_sec": 8192,
        "online/cpu_used_ratio": 0.04,
    }
    if group is not _v1_group:
        wanted |= {f"{at}/psi/cpu_some_ratio": 0.04, "online/psi/memory_full_ratio": 0.01}
    _grown(samples, wanted)


HOSTILE = {
    "empty": "",
    "binary": bytes(range(256)) * 9,
    "words": "some full cpu MemTotal: x\n" * 3,
    "negative": "cpu -1 -2 -3 -4\nsome avg10=-1 avg60=-1 avg300=-1 total=-9\nMemTotal: -5 kB\n",
    "one number": "9" * 400 + "\n",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_content_makes_values_unknown_never_zero(tmp_path, content: Any) -> None:
    _write(tmp_path, dict.fromkeys(_machine() | _v2_group(0), content))
    done = cotenant("sample", "--json", "--root", tmp_path, "--period", "50ms")
    assert (done.returncode, done.stderr) == (0, "")
    sample = json.loads(done.stdout)
    assert sample["node"].isprintable()
    assert sample["node"].strip() == sample["node"] != ""
    for name in ("psi", "memory", "cpu", "net"):
        assert not [value for value in sample[name].values() if value is not None], name
        assert any(key == name or key.startswith(f"{name}.") for key in sample["missing"]), name
    assert sample["block"]["completions"] is None


def test_directories_where_files_should_be(tmp_path) -> None:
    _write(tmp_path, {f"{name}/x": "1" for name in _machine()})
    done = cotenant("sample", "--json", "--root", tmp_path, "--period", "50ms")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["missing"]["memory"] == "io_error"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("--count", "0"), "--count"),
        (("--count", "x"), "--count"),
        (("--period", "0s"), "--period"),
        (("--period", "1"), "--period"),
        (("--period", "-1s"), "--period"),
        (("--root", "/nonexistent"), "/nonexistent"),
    ],
)
def test_bad_usage_is_one_line_with_its_place_and_exit_2(words: tuple[str, str], place: str) -> None:
    done = cotenant("sample", "--json", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert place in done.stderr


def test_a_record_that_was_cut_short_is_mended_and_can_be_replayed(tmp_path) -> None:
    _write(tmp_path / "tree", _machine())
    record = ("record", tmp_path / "r.jsonl", "--root", tmp_path / "tree", "--period", "50ms")
    assert cotenant(*record, "--count", 3).returncode == 0
    whole = (tmp_path / "r.jsonl").read_bytes()
    (tmp_path / "r.jsonl").write_bytes(whole[:-40])
    assert cotenant(*record, "--count", 2).returncode == 0
    done = cotenant("replay", tmp_path / "r.jsonl", "--json")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 4)


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_said_in_one_line(tmp_path) -> None:
    _write(tmp_path, _machine())
    done = cotenant("record", "/dev/full", "--root", tmp_path, "--period", "50ms", "--count", 3)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "No space left" in done.stderr
