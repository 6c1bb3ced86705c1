"""A kernel with what Debian's are built without: core scheduling. From Debian's own source package, as small as boots.

It takes some minutes, once; the result is cached beside the unpacked kernels.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

SOURCE = "linux-source-6.12"
TOOLS = {"make": "make", "gcc": "gcc", "flex": "flex", "bison": "bison", "bc": "bc", "xz": "xz-utils"}
BUILD_SECONDS = 3600
OPTIONS = """
64BIT SMP SCHED_CORE PCI ACPI HOTPLUG_CPU HIGH_RES_TIMERS NO_HZ_IDLE
PRINTK TTY SERIAL_8250 SERIAL_8250_CONSOLE BLK_DEV_INITRD BINFMT_ELF BINFMT_SCRIPT
PROC_FS PROC_SYSCTL SYSFS SHMEM TMPFS DEVTMPFS MULTIUSER
FUTEX EPOLL EVENTFD SIGNALFD TIMERFD POSIX_TIMERS INOTIFY_USER FILE_LOCKING ADVISE_SYSCALLS AIO MEMBARRIER RSEQ
VIRTIO_MENU VIRTIO_PCI VIRTIO_PCI_LEGACY BLOCK BLK_DEV VIRTIO_BLK
NET UNIX NET_9P NET_9P_VIRTIO NETWORK_FILESYSTEMS 9P_FS
CGROUPS CGROUP_SCHED FAIR_GROUP_SCHED CFS_BANDWIDTH CPUSETS MEMCG BLK_CGROUP BLK_DEV_THROTTLING CGROUP_FREEZER
PSI DEBUG_KERNEL SCHEDSTATS IRQ_TIME_ACCOUNTING
"""


class Unavailable(Exception):
    """There is no QEMU, no kernel or no compiler here; the text says which."""


def built(cache: pathlib.Path) -> pathlib.Path:
    """Return the directory of the kernel with these options, built if it is not there yet.

    :raises Unavailable: if it cannot be built; the text says why.
    """
    target = cache / f"core-{hashlib.sha256(OPTIONS.encode()).hexdigest()[:12]}"
    if not (target / "boot").is_dir():
        _build(cache, target)
    return target


def _build(cache: pathlib.Path, target: pathlib.Path) -> None:
    """Build the kernel into ``target/boot``.

    :raises Unavailable: if the source or a tool is missing, or it does not build; the text says which.
    """
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"a kernel cannot be built without {', '.join(missing)}")
    archive = next(iter(sorted(cache.glob(f"{SOURCE}_*.deb"))), None) or downloaded(SOURCE, cache)
    with tempfile.TemporaryDirectory(prefix="cotenant-kernel-", dir=_room(cache)) as name:
        tree = pathlib.Path(name)
        _unpack(archive, tree)
        source = tree / SOURCE
        (tree / "wanted").write_text("".join(f"CONFIG_{option}=y\n" for option in OPTIONS.split()))
        _make(source, "allnoconfig", f"KCONFIG_ALLCONFIG={tree / 'wanted'}")
        config = (source / ".config").read_text()
        absent = [option for option in OPTIONS.split() if f"\nCONFIG_{option}=y\n" not in config]
        if absent:
            raise Unavailable(f"{SOURCE} has no such options, or they lack another: {', '.join(absent)}")
        _make(source, "bzImage", f"-j{os.cpu_count() or 1}")
        beside = target.with_suffix(".new")
        shutil.rmtree(beside, ignore_errors=True)
        (beside / "boot").mkdir(parents=True)
        shutil.copy(source / "arch/x86/boot/bzImage", beside / "boot/vmlinuz-core")
        shutil.copy(source / ".config", beside / "boot/config-core")
        beside.rename(target)
    archive.unlink()


def downloaded(package: str, cache: pathlib.Path) -> pathlib.Path:
    """Return a package's archive, downloaded into a directory.

    :raises Unavailable: if it cannot be had.
    """
    run = subprocess.run(
        ["apt-get", "download", package], cwd=cache, capture_output=True, text=True, timeout=BUILD_SECONDS
    )
    if run.returncode:
        raise Unavailable(f"{package} cannot be downloaded: {run.stderr.strip().splitlines()[-1:]}")
    return next(iter(sorted(cache.glob(f"{package}_*.deb"))))


def _room(cache: pathlib.Path) -> pathlib.Path:
    """Return where two gigabytes of sources go: memory, if there is enough of it."""
    memory = pathlib.Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 6 << 30:
        return memory
    return cache


def _unpack(archive: pathlib.Path, tree: pathlib.Path) -> None:
    package = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE)
    inner = ["tar", "-x", "-f", "-", "-O", f"./usr/src/{SOURCE}.tar.xz"]
    source = subprocess.Popen(inner, stdin=package.stdout, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-J", "-f", "-", "-C", tree], stdin=source.stdout, check=True, timeout=BUILD_SECONDS)


def _make(source: pathlib.Path, *words: str) -> None:
    fixed = ("KBUILD_BUILD_USER=cotenant", "KBUILD_BUILD_HOST=cotenant", "KBUILD_BUILD_TIMESTAMP=1970-01-01")
    command = ["nice", "-n", "19", "make", "-s", "-C", str(source), *fixed, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"building a kernel took longer than {BUILD_SECONDS} s") from error
    if done.returncode:
        raise Unavailable(f"make {words[0]}: {done.stderr.strip()[-500:]}")
