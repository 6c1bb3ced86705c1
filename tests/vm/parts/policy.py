"""``cotenant enforce`` with a NodeSLO on real groups: disk limits, CPUs of their own, memory, and everything back."""

import time
from typing import Any

from tests.vm.parts import console, node, work

from cotenant.kernel import paths

DISK = "/dev/vda"
BYTES_PER_SEC = 1 << 20
READ_BLOCKS, BLOCK_BYTES = 32, 1 << 16
SPEC: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cpuset"},
    "resourceQOSStrategy": {
        "lsrClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
        "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}, "memoryQOS": {"enable": True}},
        "beClass": {
            "cpuQOS": {"enable": True, "groupIdentity": -1},
            "blkioQOS": {
                "enable": True,
                "blocks": [{"type": "device", "name": DISK, "ioCfg": {"readBPS": BYTES_PER_SEC, "writeIOPS": 100}}],
            },
        },
    },
}
USAGE = {"node": {"cpu_millicores": 600}, "system": {"cpu_millicores": 600}, "pods": {}}


def look(root: paths.Root) -> dict[str, Any]:
    with node.kubelet(root) as here:
        before = here.content()
        free = min(read_seconds(here) for _ in range(3))  # a machine that stands still does so in one of them
        planned = here.enforce(SPEC, "--dry-run", usage=USAGE)
        untouched = here.content() == before
        status, done, said = here.enforce(SPEC, usage=USAGE)
        found = {
            "status": status,
            "said": said,
            "dry run": [planned[0], planned[1] == done, untouched],
            "planned": sorted({item["strategy"] for item in done}),
            "disk": limits(here),
            "seconds free and limited": [free, read_seconds(here)],
            "allowed": {name: here.allowed(name) for name in here.workers},
            "idle": here.file("cpu", node.PLACES["be"].rpartition("/")[0], "cpu.idle").read_text().strip(),
            "again": here.enforce(SPEC, usage=USAGE)[:2],
        }
        found["restored"] = console.restore()
        after = here.content()
        found["changed"] = {path: [before[path], after.get(path)] for path in before if before[path] != after.get(path)}
        found["allowed after"] = {name: here.allowed(name) for name in here.workers}
        return found


def limits(here: node.Node) -> dict[str, str]:
    """Return what the kernel says of the offline directory's disk limits."""
    group = "kubepods/besteffort"
    names = ("io.max",) if here.root.cgroup_version() == "v2" else (
        "blkio.throttle.read_bps_device", "blkio.throttle.write_iops_device"
    )  # fmt: skip
    controller = "io" if here.root.cgroup_version() == "v2" else "blkio"
    return {name: here.file(controller, group, name).read_text().strip() for name in names}


def read_seconds(here: node.Node) -> float:
    """Return how long an offline task takes for two MiB of the disk."""
    groups = [top / node.PLACES["be"] for top in here.tops]
    worker = work.Worker(lambda: work.direct_io(DISK, READ_BLOCKS, BLOCK_BYTES, write=False)).enter(*groups)
    begin = time.monotonic()
    worker.begin()
    worker.wait()
    return time.monotonic() - begin
