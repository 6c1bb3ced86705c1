"""What sampling costs: time per sample, CPU of one core, resident memory, on this machine and on a synthetic one.

``make bench`` runs it, or ``.venv/bin/python bench/agent/run.py [--samples N] [--json]``. Rows: this machine as it is;
with 150 more control groups (root only; they are removed again); a tree of files that stands for a node with 256 CPUs,
16 cache domains and 250 pods. Each row runs in a process of its own, so that its memory is its own.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

GROUPS = 150
TOP = "cotenant-bench"
TARGETS = {
    "this machine": "≤ 2 ms a sample on 8 CPUs",
    "this machine, 150 groups more": "≤ 2 % of one core, ≤ 64 MiB",
    "synthetic: 256 CPUs, 16 LLCs, 250 pods": "≤ 5 % of one core",
}


def measure(root: str, samples: int, bpf: bool) -> dict[str, float]:
    """Return what one sampler costs: seconds of CPU at each sample, and the memory of this process."""
    from cotenant.kernel import paths, sampler

    place = paths.Root(root)
    source = sampler.open_sampler(place, period_s=1.0) if bpf else sampler.Sampler(place, period_s=1.0)
    source.prime()
    wall, cpu = [], []
    before_kb = 0
    stats = [] if place.is_machine else sorted(place.directory.glob("sys/fs/cgroup/kubepods.slice/**/cpu.stat"))
    for index in range(samples):
        time.sleep(0.02)  # counters move, and the next sample is not the cached one
        _work_in(stats, index)
        started, used = time.perf_counter(), time.process_time()
        sample = source.sample()
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
        if index == samples // 2:
            before_kb = _resident_kb()
    after_kb = _resident_kb()
    source.close()
    wall.sort()
    return {
        "cgroups": len(sample.cgroups),
        "p50_ms": statistics.median(wall) * 1e3,
        "p99_ms": wall[min(int(len(wall) * 0.99), len(wall) - 1)] * 1e3,
        "cpu_percent": statistics.mean(cpu) * 100,
        "resident_mib": after_kb / 1024,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "growth_kib": after_kb - before_kb,
    }


def _work_in(stats: list[pathlib.Path], index: int) -> None:
    """Have every group of a tree of files use CPU, as its kernel would show it."""
    for path in stats:
        path.write_text(f"usage_usec {index * 1000}\nnr_periods {index}\nnr_throttled 0\nthrottled_usec 0\n")


def _resident_kb() -> int:
    text = pathlib.Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


@contextmanager
def more_groups(count: int) -> Iterator[bool]:
    """Make empty control groups in each hierarchy of this machine; yield whether it was possible."""
    from cotenant.kernel import paths

    tops = {mount.path / TOP for mount in paths.Root().cgroup_mounts() if mount.controllers or mount.version == 2}
    made: list[pathlib.Path] = []
    try:
        try:
            for top in tops:
                for path in (top, *(top / f"g{n}.service" for n in range(count))):
                    path.mkdir()
                    made.append(path)
        except OSError as error:
            print(f"bench/agent: no more groups: {error}", file=sys.stderr)
            yield False
        else:
            yield True
    finally:
        for path in reversed(made):
            path.rmdir()


@contextmanager
def synthetic(cpus: int = 256, pods: int = 250, containers: int = 2) -> Iterator[str]:
    """Make a tree of files like that of a large node, in memory where there is a tmpfs."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = tempfile.mkdtemp(prefix="cotenant-bench-", dir=place)
    root = pathlib.Path(directory)
    fixtures = pathlib.Path(__file__).parent.parent.parent / "tests" / "fixtures"
    try:
        shutil.copytree(fixtures / "mainline-6.18-v1" / "proc", root / "proc")
        v2 = fixtures / "v2-systemd-kubepods"
        shutil.copyfile(v2 / "proc/self/mountinfo", root / "proc/self/mountinfo")
        line = " 123456 789 45678 9876543 210 0 345 67 0 0\n"
        per_cpu = "".join(f"cpu{n}{line}" for n in range(cpus))
        interrupts = " ".join(["0"] * 6 * cpus)
        (root / "proc/stat").write_text(f"cpu {line}{per_cpu}intr 987654 {interrupts}\nctxt 1\nsoftirq 5 1 2\n")
        softnet = "".join(f"{'00000000 ' * 12}{n:08x} 00000000 00000000\n" for n in range(cpus))
        (root / "proc/net/softnet_stat").write_text(softnet)
        top = root / "sys/fs/cgroup"
        template = v2 / "sys/fs/cgroup/system.slice/nginx.service"
        for pod in range(pods):
            slice_ = top / f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod:08d}_0000.slice"
            scopes = [slice_ / f"cri-containerd-{pod:032d}{n:032d}.scope" for n in range(containers)]
            for group in (slice_, *scopes):
                shutil.copytree(template, group, ignore=shutil.ignore_patterns("worker"))
        (top / "cgroup.controllers").write_text("cpu io memory\n")
        _resctrl(root, domains=16)
        yield directory
    finally:
        shutil.rmtree(directory)


def _resctrl(root: pathlib.Path, domains: int) -> None:
    resctrl = root / "sys/fs/resctrl"
    (resctrl / "info/L3_MON").mkdir(parents=True)
    (resctrl / "info/L3_MON/mon_features").write_text("llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n")
    for domain in range(domains):
        data = resctrl / f"mon_data/mon_L3_{domain:02d}"
        data.mkdir(parents=True)
        for name in ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"):
            (data / name).write_text("123456\n")


def _row(root: str, samples: int, bpf: bool) -> dict[str, float]:
    words = [sys.executable, __file__, "--measure", root, "--samples", str(samples), *(["--bpf"] if bpf else [])]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--measure", metavar="DIR", help="only measure one root, as JSON")
    parser.add_argument("--bpf", action="store_true", help="with --measure: with BPF")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.samples, options.bpf)))
        return 0
    rows = {"this machine": _row("/", options.samples, bpf=True)}
    with more_groups(GROUPS) as possible:
        if possible:
            rows["this machine, 150 groups more"] = _row("/", options.samples, bpf=True)
    with synthetic() as directory:
        rows["synthetic: 256 CPUs, 16 LLCs, 250 pods"] = _row(directory, options.samples, bpf=False)
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    print(f"{'':40}{'groups':>7}{'p50 ms':>8}{'p99 ms':>8}{'CPU %':>7}{'MiB':>6}{'growth KiB':>12}  target")
    for name, row in rows.items():
        numbers = f"{row['cgroups']:7.0f}{row['p50_ms']:8.2f}{row['p99_ms']:8.2f}{row['cpu_percent']:7.2f}"
        print(f"{name:40}{numbers}{row['resident_mib']:6.0f}{row['growth_kib']:12.0f}  {TARGETS[name]}")
    print("CPU is of one core at one sample a second; growth is of the second half of the samples.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
