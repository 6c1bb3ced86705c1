"""The only place that opens kernel files for writing: below the root, through no link that leads out of it.

Used by the executor and by its trials on scratch groups, by nothing else.
"""

import ctypes
import errno
import os
import pathlib
import stat
from collections.abc import Callable
from types import TracebackType
from typing import Self

from cotenant.kernel import errors, paths

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_BYTES = 1 << 20
_MAX_BYTES = 64 << 20
"""More than any kernel file holds."""

_PROC = 0x9FA0
_KERNEL_FILE_SYSTEMS = frozenset(
    {
        0x27E0EB,  # cgroup
        0x63677270,  # cgroup2
        0x7655821,  # resctrl
        _PROC,
        0x62656572,  # sysfs
        0x64626720,  # debugfs
        0x74726163,  # tracefs
        0x65735546,  # fuse: a file system that answers like a kernel
    }
)


class BadPath(errors.KernelError):
    """A path that is absolute, climbs with ``..``, or leads out of the root."""


class Channel:
    """Confined access below one root. ``write`` is write(2) unless a test wants to die in it."""

    def __init__(self, root: paths.Root, write: Callable[[int, bytes], int] = os.write) -> None:
        self.root = root
        self.write = write

    def directory(self, path: str) -> "Directory":
        """Return an open directory below the root.

        :raises BadPath: if the path is absolute, has ``..``, or leads out of the root.
        :raises OSError: as open(2) does.
        """
        parts = _parts(path)
        try:
            return Directory(self, path, _walk(str(self.root.directory), parts))
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
        # A link in the way: allowed if it stays below the root. Walk what it resolves to, again through no link.
        top = pathlib.Path(os.path.realpath(self.root.directory))
        resolved = pathlib.Path(os.path.realpath(top.joinpath(*parts)))
        if not resolved.is_relative_to(top):
            raise BadPath(f"{path}: a link leads out of {self.root.directory}")
        return Directory(self, path, _walk(str(top), list(resolved.relative_to(top).parts)))

    def parent(self, path: str) -> "Directory":
        """Return the open directory that a path's last part is in."""
        return self.directory(os.path.dirname(path))

    def directories_below(self, path: str) -> list[str]:
        """Return the paths of all directories below one, without following links."""
        top = self.root.directory / path
        return [
            self.root.relative(os.path.join(place, name))
            for place, names, _ in os.walk(top)
            for name in sorted(names)
            if not os.path.islink(os.path.join(place, name))
        ]

    def peek(self, path: str) -> str | None:
        """Return a file's text, or None where it cannot be read; for comparing only."""
        try:
            with self.parent(path) as directory:
                return directory.read(os.path.basename(path))
        except (OSError, BadPath):
            return None


class Directory:
    """An open directory; its files are named without a path."""

    def __init__(self, channel: Channel, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.inode = _identity(descriptor)
        """Device and inode; (0, 0) in procfs, which numbers its directories anew when memory is short."""
        self._channel = channel

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def has(self, name: str) -> bool:
        """Return whether there is a plain file of that name, as all files of the kernel are."""
        status = self._status(name)
        return status is not None and stat.S_ISREG(status.st_mode)

    def readable(self, name: str) -> bool:
        """Return whether a file can be read at all; what only takes commands has no read permission for anyone."""
        status = self._status(name)
        return status is not None and bool(status.st_mode & 0o444)

    def inode_of(self, name: str) -> tuple[int, int] | None:
        """Return device and inode of an entry, or None without it."""
        status = self._status(name)
        return None if status is None else (status.st_dev, status.st_ino)

    def is_directory(self, name: str) -> bool:
        status = self._status(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return None

    def read(self, name: str) -> str:
        """Return a file's bytes as text, one character a byte, so that it can be written back exactly."""
        self._check(name)
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            chunks = []
            size = 0
            while chunk := os.read(descriptor, _READ_BYTES):
                chunks.append(chunk)
                size += len(chunk)
                if size > _MAX_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
        finally:
            os.close(descriptor)
        return b"".join(chunks).decode("latin-1")

    def write(self, name: str, text: str) -> None:
        """Replace a file's content by one write(2); an empty text only truncates.

        :raises OSError: as open(2) and write(2) do; EIO for a short write.
        """
        self._check(name)
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.descriptor)
        try:
            data = text.encode("latin-1")
            if data and self._channel.write(descriptor, data) != len(data):
                raise OSError(errno.EIO, "short write", name)
        finally:
            os.close(descriptor)

    def _check(self, name: str) -> None:
        """Refuse a pipe or a device, which no kernel keeps here, and whose opening could wait for ever.

        :raises OSError: EINVAL for it. Not by O_NONBLOCK: with that, memory.max and memory.high do not reclaim.
        """
        status = self._status(name)
        if status is not None and not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)

    def is_plain(self, name: str) -> bool:
        """Return whether a file is on an ordinary file system, where a write replaces everything."""
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            return _file_system(descriptor) not in _KERNEL_FILE_SYSTEMS
        finally:
            os.close(descriptor)

    def mkdir(self, name: str) -> None:
        """Make a group. Among ordinary files it gets what the kernel gives one: the files of the group above, empty."""
        os.mkdir(name, 0o755, dir_fd=self.descriptor)
        if self.is_plain(name):
            with self._inner(name) as made:
                for file in self._files():
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    os.close(os.open(file, flags, 0o644, dir_fd=made.descriptor))

    def rmdir(self, name: str) -> None:
        """Remove a group without groups in it. Among ordinary files its files go with it, as the kernel's do.

        :raises OSError: as rmdir(2) does.
        """
        if self.is_plain(name):
            with self._inner(name) as group:
                files = group._files()
                for file in files if len(files) == len(group._names()) else ():
                    os.unlink(file, dir_fd=group.descriptor)
        os.rmdir(name, dir_fd=self.descriptor)

    def _inner(self, name: str) -> "Directory":
        return Directory(self._channel, f"{self.path}/{name}", os.open(name, _DIRECTORY, dir_fd=self.descriptor))

    def _files(self) -> list[str]:
        return [name for name in self._names() if self.has(name)]

    def _names(self) -> list[str]:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path or not parts:
        raise BadPath(f"{path!r}: a path of a plan is relative to the root and does not climb")
    return parts


def _walk(top: str, parts: list[str]) -> int:
    descriptor = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            below = os.open(part, _DIRECTORY, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


_LIBC = ctypes.CDLL(None, use_errno=True)


def _identity(descriptor: int) -> tuple[int, int]:
    if _file_system(descriptor) == _PROC:
        return (0, 0)
    status = os.fstat(descriptor)
    return (status.st_dev, status.st_ino)


def _file_system(descriptor: int) -> int:
    """Return the magic number of a descriptor's file system; struct statfs begins with it."""
    buffer = ctypes.create_string_buffer(256)
    if _LIBC.fstatfs(descriptor, buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
