"""The double as real files: one FUSE mount whose write(2) answers with the double's errno.

``with mounted(kernel, directory):`` serves ``directory/{proc,sys}``; the mount is served by a thread of this process,
so that a test can look at the kernel and change it while the product works on the files. ``run`` next to them is an
ordinary directory (the journal's). Mount at an empty directory only.
"""

import contextlib
import ctypes.util
import errno
import os
import pathlib
import signal
import stat
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

from tests.double.model import CGROUP, Kernel
from tests.double.text import refusal
from tests.waiting import PATIENCE_SECONDS


def unavailable() -> str | None:
    """Return why nothing can be mounted here, or None."""
    if not os.path.exists("/dev/fuse"):
        return "no /dev/fuse"
    if os.geteuid() != 0:
        return "mounting the double needs root"
    if ctypes.util.find_library("fuse3") is None:
        return "libfuse3 is missing (Debian: libfuse3-3)"
    return None


class _Handle:
    """An open file: the group it belongs to, so that a removed one answers ENODEV as kernfs does."""

    def __init__(self, path: str, group: Any) -> None:
        self.path = path
        self.group = group
        self.text: bytes | None = None


class Tree:
    """The file system's operations, one lock around the kernel."""

    use_ns = True
    flag_nopath = flag_nullpath_ok = True
    """Handles say which file is meant: the path of a removed group is not one any more."""

    def __init__(self, kernel: Kernel, run_directory: pathlib.Path) -> None:
        self.kernel = kernel
        self.guard = threading.Lock()
        self.handles: dict[int, _Handle] = {}
        self.numbers = iter(range(1, 1 << 60))
        self.run_directory = run_directory
        self.links = {**kernel.links, "run": str(run_directory)}
        names = {*kernel.files, *self.links, *(hierarchy.point for hierarchy in kernel.hierarchies)}
        self.directories: dict[str, set[str]] = {"": set()}
        for name in names:
            parts = name.split("/")
            for depth, part in enumerate(parts):
                self.directories.setdefault("/".join(parts[:depth]), set()).add(part)

    def init_with_config(self, connection: Any, config: Any) -> None:
        """Let inode numbers be the groups' own, and let nothing be cached."""
        config.use_ino = 1
        config.direct_io = 1
        config.attr_timeout = config.entry_timeout = config.negative_timeout = 0.0

    def _entry(self, path: str) -> tuple[int, int]:
        """Return mode and inode."""
        if path in self.links:
            return stat.S_IFLNK | 0o777, 0
        if path in self.kernel.files:
            writable = self.kernel.files[path].check is not None
            return stat.S_IFREG | (0o644 if writable else 0o444), 0
        if path in self.directories and not path.startswith(CGROUP + "/"):
            return stat.S_IFDIR | 0o755, 0
        try:
            return stat.S_IFDIR | 0o755, self.kernel.group(path).inode
        except OSError:
            above, _, name = path.rpartition("/")
            group = self.kernel.group(above)
            file = group.hierarchy.file_of(group, name)
        mode = (0o444 if file.readable else 0) | (0o200 if file.writable else 0)
        return stat.S_IFREG | mode, 0

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        if path is None:
            path = self.handles[fh or 0].path
        with self.guard:
            mode, inode = self._entry(path.strip("/"))
            links = 2 + self._directories_in(path.strip("/")) if stat.S_ISDIR(mode) else 1
        number = inode or zlib.crc32(path.encode()) + (1 << 32)
        return {"st_mode": mode, "st_nlink": links, "st_size": 0, "st_ino": number}

    def _directories_in(self, path: str) -> int:
        """Return how many directories one holds, which a kernel shows as links to it."""
        with contextlib.suppress(OSError):
            return len(self.kernel.group(path).children)
        return sum(f"{path}/{name}".lstrip("/") in self.directories for name in self.directories.get(path, ()))

    def release(self, path: str | None, fh: int) -> int:
        self.handles.pop(fh, None)
        return 0

    def opendir(self, path: str) -> int:
        number = next(self.numbers)
        self.handles[number] = _Handle(path.lstrip("/"), None)
        return number

    releasedir = release

    def readdir_with_offset(self, path: str | None, offset: int, fh: int) -> list[tuple[str, None, int]]:
        """List from an offset on: a v2 group's names do not fit into one buffer of the kernel."""
        name = self.handles[fh].path
        with self.guard:
            found = set(self.directories.get(name, ()))
            with contextlib.suppress(OSError):
                group = self.kernel.group(name)
                found = {*group.children, *(file.name for file in group.hierarchy.files_of(group))}
        names = [".", "..", *sorted(found)]
        return [(names[at], None, at + 1) for at in range(offset, len(names))]

    def readlink(self, path: str) -> str:
        return self.links[path.lstrip("/")]

    def open(self, path: str, flags: int) -> int:
        name = path.lstrip("/")
        with self.guard:
            self._entry(name)
            group = None
            if name not in self.kernel.files:
                group = self.kernel.group(name.rpartition("/")[0])
            number = next(self.numbers)
            self.handles[number] = _Handle(name, group)
        return number

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        raise refusal("EACCES")

    def _handle(self, fh: int) -> _Handle:
        handle = self.handles[fh]
        if handle.group is not None and handle.group.gone:
            raise refusal("ENODEV")
        return handle

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        with self.guard:
            handle = self._handle(fh)
            if offset == 0 or handle.text is None:
                handle.text = self.kernel.read(handle.path).encode()
            return handle.text[offset : offset + size]

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        with self.guard:
            handle = self._handle(fh)
            self.kernel.writer = 1
            self.kernel.write(handle.path, data.decode("latin-1"))
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        with self.guard:
            self._made_in_groups(path)
            self.kernel.mkdir(path.lstrip("/"))
        return 0

    def rmdir(self, path: str) -> int:
        with self.guard:
            self._made_in_groups(path)
            self.kernel.rmdir(path.lstrip("/"))
        return 0

    def unlink(self, path: str) -> int:
        raise refusal("EPERM")

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": 4096, "f_namemax": 255}

    def _made_in_groups(self, path: str) -> None:
        if not any(path.lstrip("/").startswith(h.point + "/") for h in self.kernel.hierarchies) and not any(
            path.lstrip("/").startswith(link + "/") for link in self.kernel.links
        ):
            raise refusal("EPERM")


def _living(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def mounted(kernel: Kernel, directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """Serve a double below an empty directory; real processes may be moved into its groups."""
    import mfusepy

    root = directory / "root"
    run_directory = directory / "run"
    root.mkdir()
    run_directory.mkdir()
    kernel.adopts = _living
    failure: list[BaseException] = []

    def serve() -> None:
        try:
            mfusepy.FUSE(Tree(kernel, run_directory), str(root), foreground=True, nothreads=True, fsname="double")
        except (RuntimeError, OSError) as error:
            failure.append(error)

    before = signal.getsignal(signal.SIGTERM)
    server = threading.Thread(target=serve, name="double", daemon=True)
    server.start()
    try:
        _await_mount(root, server, failure)
        # libfuse takes SIGTERM for itself; the process keeps what it had.
        signal.signal(signal.SIGTERM, before)
        yield root
    finally:
        if os.path.ismount(root):
            subprocess.run(["umount", "--lazy", str(root)], check=True, timeout=PATIENCE_SECONDS)
        server.join(PATIENCE_SECONDS)


def _await_mount(root: pathlib.Path, server: threading.Thread, failure: list[BaseException]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (root / "proc").is_dir():
        if failure or not server.is_alive():
            raise OSError(errno.EIO, f"the double could not be mounted: {failure}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the double was not mounted within {PATIENCE_SECONDS} s")
        time.sleep(0.01)
