"""Boot a Debian kernel in QEMU and run a plain Python script of this tree in it.

No KVM is needed. The guest sees this machine's files read-only by 9p and runs this machine's Python; it writes its
result to a second share. Kernels come by ``apt-get download`` and are cached outside the tree.
"""

import contextlib
import fcntl
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.vm import building
from tests.vm.building import Unavailable
from tests.vm.parts.work import GUEST

CACHE = pathlib.Path(os.environ.get("COTENANT_VM_CACHE", pathlib.Path.home() / ".cache/cotenant/vm"))
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BOOT_SECONDS = 600
"""A boot and all parts take about a minute on an idle machine; a busy one stands still for as long, more than once."""
BOOTS = 3
"""A guest of 6.1 once stood still for no reason that was found: it is booted anew, and what it did is printed.
``guest.py`` tells where it is when it takes long.
"""
TIMED_OUT = 124
"""How ``timeout`` ends where it had to end the guest."""
DISK_BYTES = 64 << 20
MODULES = {
    "6.12": ("virtio_blk", "netfs", "9pnet", "9pnet_virtio", "9p"),
    "core": (),
    "6.1": (
        "virtio_ring",
        "virtio_pci_modern_dev",
        "virtio_pci_legacy_dev",
        "virtio",
        "virtio_pci",
        "virtio_blk",
        "9pnet",
        "9pnet_virtio",
        "netfs",
        "fscache",
        "9p",
    ),
}
INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /host
$b mount -t proc proc /proc; $b mount -t sysfs sysfs /sys; $b mount -t devtmpfs dev /dev
for m in MODULES; do $b insmod /modules/$m.ko; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose host /host
for d in proc sys dev; do $b mount --bind /$d /host/$d; done
$b mount -t tmpfs run /host/run
$b mount -t tmpfs tmp /host/var/tmp
$b mkdir -p /host/run/result
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 result /host/run/result
CGROUPS
$b chroot /host /usr/bin/env COMMAND > /host/run/result/output 2>&1
status=$?
echo $status > /host/run/result/status
$b sync
$b umount /host/run/result
$b poweroff -f
"""
V2 = "$b mount -t cgroup2 cgroup2 /host/sys/fs/cgroup"
V1 = """$b mount -t tmpfs cgroup /host/sys/fs/cgroup
for c in cpu cpuacct cpuset memory blkio; do
  d=/host/sys/fs/cgroup/$c; $b mkdir $d; $b mount -t cgroup -o $c cgroup $d || $b rmdir $d
done"""


def kernel(series: str) -> pathlib.Path:
    """Return the directory of an unpacked kernel of a series (``6.12``), downloaded once.

    :raises Unavailable: if Debian's packages cannot be had.
    """
    for tool in ("qemu-system-x86_64", "dpkg-deb", "apt-get", "busybox"):
        if shutil.which(tool) is None:
            raise Unavailable(f"{tool} is missing (Debian: qemu-system-x86, busybox-static)")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _unpacked(series)


def _unpacked(series: str) -> pathlib.Path:
    if series == "core":
        return building.built(CACHE)
    target = CACHE / series
    if (target / "boot").is_dir():
        return target
    archive = next(iter(sorted(CACHE.glob(f"linux-image-{series}*.deb"))), None) or _newest(series)
    beside = CACHE / f"{series}.new"
    shutil.rmtree(beside, ignore_errors=True)
    subprocess.run(["dpkg-deb", "--extract", archive, beside], check=True, timeout=BOOT_SECONDS)
    beside.rename(target)
    return target


def _newest(series: str) -> pathlib.Path:
    names = subprocess.run(
        ["apt-cache", "pkgnames", f"linux-image-{series}."],
        capture_output=True,
        text=True,
        timeout=BOOT_SECONDS,
        check=False,
    ).stdout.split()
    plain = [name for name in names if name.endswith("-amd64") and not any(k in name for k in ("cloud", "rt", "dbg"))]
    if not plain:
        raise Unavailable(f"apt knows no linux-image-{series}.*-amd64 (apt-get update?)")
    newest = max(plain, key=lambda name: [int(n) for n in "".join(c if c.isdigit() else " " for c in name).split()])
    return building.downloaded(newest, CACHE)


def boot(series: str, version: int, script: pathlib.Path, directory: pathlib.Path, *words: str) -> dict[str, Any]:
    """Run a script in a guest with cgroup v1 or v2 and return the JSON object that it printed last.

    ``series`` is one of Debian's kernels, or ``core``: our own build of one, with core scheduling.

    :raises Unavailable: if there is nothing to boot.
    :raises AssertionError: if the guest or the script fails; the text holds what they printed.
    """
    found = kernel(series)
    result = directory / "result"
    result.mkdir()
    disk = directory / "disk"
    initramfs = _initramfs(found, series, version, " ".join([str(script), *words]), directory)
    command = [
        *("timeout", "--kill-after=5", str(BOOT_SECONDS), "qemu-system-x86_64"),
        *("-accel", "tcg,thread=single", "-machine", "pc", "-cpu", "max,vendor=GenuineIntel"),
        *("-smp", "4,sockets=1,cores=2,threads=2", "-m", "1G", "-nographic", "-no-reboot", "-nodefaults"),
        *("-serial", "stdio", "-kernel", str(next((found / "boot").glob("vmlinuz-*"))), "-initrd", str(initramfs)),
        *("-append", f"console=ttyS0 {'cgroup_no_v1=all ' if version == 2 else ''}psi=1 quiet panic=-1 {GUEST}"),
        *("-drive", f"file={disk},format=raw,if=virtio,cache=unsafe"),
        *_share("host", "/", "multidevs=remap,readonly=on"),
        *_share("result", str(result), "multidevs=remap"),
    ]
    for _ in range(BOOTS):
        with open(disk, "wb") as stream:
            stream.truncate(DISK_BYTES)
        console = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        output = _text(result / "output")
        if console.returncode != TIMED_OUT:
            break
        print(f"the guest stood still:\n{console.stdout[-3000:]}\n{output[-6000:]}")
    # A guest that panics ends QEMU with 0: only the status that the script left counts.
    assert _text(result / "status").strip() == "0", f"console:\n{console.stdout[-3000:]}\noutput:\n{output[-6000:]}"
    return dict(json.loads(output.strip().splitlines()[-1]))


def _share(tag: str, path: str, more: str) -> Iterator[str]:
    yield "-virtfs"
    yield f"local,path={path},mount_tag={tag},security_model=none,{more}"


def _text(path: pathlib.Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(errors="replace")
    return ""


def _initramfs(found: pathlib.Path, series: str, version: int, script: str, directory: pathlib.Path) -> pathlib.Path:
    tree = directory / "initramfs"
    for name in ("bin", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", tree / "bin/busybox")
    names = [name for name in MODULES[series] if _module(found, name, tree / "modules" / f"{name}.ko")]
    search = os.pathsep.join([str(REPOSITORY / "src"), *(path for path in sys.path if "site-packages" in path)])
    python = os.path.realpath(sys.executable)
    places = "HOME=/var/tmp TMPDIR=/var/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    command = f"PYTHONPATH={search}:{REPOSITORY} {places} {python} -S {script}"
    text = INIT.replace("MODULES", " ".join(names)).replace("COMMAND", command)
    (tree / "init").write_text(text.replace("CGROUPS", V2 if version == 2 else V1))
    (tree / "init").chmod(0o755)
    image = directory / "initramfs.cpio"
    listing = subprocess.run(["find", "."], cwd=tree, check=True, capture_output=True).stdout
    with open(image, "wb") as stream:
        subprocess.run(
            ["busybox", "cpio", "-o", "-H", "newc"],
            cwd=tree,
            input=listing,
            stdout=stream,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return image


def _module(found: pathlib.Path, name: str, target: pathlib.Path) -> bool:
    """Copy a module, unpacked; False where it is built in."""
    for path in found.glob(f"lib/modules/*/kernel/**/{name}.ko*"):
        data = path.read_bytes()
        target.write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
        return True
    return False
