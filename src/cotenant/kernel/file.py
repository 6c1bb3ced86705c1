"""A kernel file that is read again and again through one open descriptor."""

import errno
import os
import resource
from typing import ClassVar

from cotenant.kernel import errors

CHUNK_BYTES = 65536
MAX_BYTES = 64 << 20
"""More than any kernel file that is read here: past it the file is not what it should be."""


KEPT_SHARE = 0.75
"""How much of the process's descriptors files may keep: sockets, libraries and children need some too."""
OTHERS = 48
"""Descriptors that are always left to others: BPF, the page and the history have some thirty before a client comes."""


class File:
    """One file, opened at its first read and read from its start each time.

    A descriptor spares the path walk, and notices that a group was removed even when another took its name (ENODEV).
    When the process has no descriptors left, each read opens and closes.

    A tree of plain files is changed by removing and renaming too, which leaves a descriptor with what was there before;
    so for these it is asked whether they still have a name. They have a size, where what the kernel makes up has none.
    """

    __slots__ = ("_fd", "_hint", "_plain", "path", "seen")

    kept: ClassVar[int] = 0
    """Descriptors that all files of this process keep open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.seen = False
        """True once it was read: a later ENOENT then means that it vanished, not that this kernel lacks it."""
        self._fd = -1
        self._hint = 4096
        self._plain = False

    def read(self) -> bytes:
        """Return the whole content.

        :raises FileError: if it cannot be opened or read; the descriptor is closed then, so the next read opens anew.
        """
        try:
            if self._plain and self._fd >= 0:
                self._close_if_replaced()
            fd = self._fd
            opened = fd < 0
            if opened:
                fd = self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
                File.kept += 1
            data = os.pread(fd, self._hint, 0)
            if len(data) >= self._hint:
                data = self._rest(fd, data)
        except OSError as error:
            self.close()
            raise errors.FileError(self.path, error.errno or errno.EIO) from None
        self.seen = True
        if opened:
            status = os.fstat(fd)
            self._plain = status.st_size > 0 or not data
            if File.kept > self._kept_limit():
                self.close()
        return data

    def __del__(self) -> None:
        self.close()  # a reader that nobody holds any more gives its descriptors back, also when nobody closed it

    def _close_if_replaced(self) -> None:
        if os.fstat(self._fd).st_nlink == 0:
            self.close()

    @staticmethod
    def _kept_limit() -> float:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return float("inf") if soft == resource.RLIM_INFINITY else min(soft * KEPT_SHARE, soft - OTHERS)

    def _rest(self, fd: int, data: bytes) -> bytes:
        parts, offset = [data], len(data)
        while True:
            part = os.pread(fd, CHUNK_BYTES, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            if offset > MAX_BYTES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        # seq_file renders again for each call: the next read asks for all of it at once.
        self._hint = min(offset + offset // 4 + 1, MAX_BYTES)
        return b"".join(parts)

    def close(self) -> None:
        """Close the descriptor; the next read opens the path again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            File.kept -= 1
            try:
                os.close(fd)
            except OSError:
                return  # closed by the error that brought us here; there is nothing left to release


def read_once(path: str) -> bytes:
    """Return the whole content of a file that comes and goes, or of which a descriptor must not be kept.

    :raises FileError: if it cannot be opened or read, or is larger than any kernel file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            data = os.pread(fd, CHUNK_BYTES, 0)
            while part := os.pread(fd, CHUNK_BYTES, len(data)):
                data += part
                if len(data) > MAX_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        finally:
            os.close(fd)
    except OSError as error:
        raise errors.FileError(path, error.errno or errno.EIO) from None
    return data


def number(word: bytes, path: str) -> int:
    """Return a decimal count that fits in 64 bits.

    :raises MalformedFile: if the word is not one.
    """
    if not word.isdigit() or len(word) > 20:
        raise errors.MalformedFile(path, f"{word[:40]!r} is not a count")
    return int(word)
