"""``cotenant record``: samples appended to a file, one JSON object a line, for ``cotenant replay``."""

import errno
import os
import pathlib
import stat
from typing import Annotated

import typer

from cotenant.cli import roots, sampling
from cotenant.model import sample as samples
from cotenant.units import errors
from cotenant.units.malformed import MALFORMED

TAIL_BYTES = 1 << 22
"""More than the longest sample: 2,000 groups are about 1 MiB."""

_SAMPLE_BEGINS = b'{"node"'


class BadRecord(errors.CotenantError):
    """The file cannot take samples."""


def command(
    file: Annotated[pathlib.Path, typer.Argument(metavar="FILE", help="Where to append; made if it is not there.")],
    root: roots.Option = "/",
    period: sampling.Period = "1s",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many; else ctrl-C.")] = None,
    node: sampling.Node = None,
    match: sampling.Match = None,
    llc_probe: sampling.LlcProbe = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each sample as well.")] = False,
) -> None:
    """Append samples to a file until ctrl-C; the file is whole lines at all times, also after kill -9."""
    from cotenant.cli import printing

    source = sampling.open_sampler(root, period, node, match, llc_probe)
    with Record(file) as record:
        for sample in sampling.ticks(source, count):
            record.append(samples.encode(sample))
            if as_json:
                printing.print_json_line(sample)


class Record:
    """A file of lines, each written by one call, so that no reader sees half of one."""

    def __init__(self, path: pathlib.Path) -> None:
        """Open for appending; the half line that a power cut may have left is cut off.

        :raises BadRecord: if it cannot be opened, or what it ends in is not a sample.
        """
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadRecord(f"{path}: {error.strerror}; give a file that can be written") from None
        try:
            self._drop_torn_line()
        except BaseException:
            os.close(self._fd)
            raise

    def _drop_torn_line(self) -> None:
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            return  # a pipe or a device: nothing was there before
        size = status.st_size
        tail = os.pread(self._fd, TAIL_BYTES, max(size - TAIL_BYTES, 0))
        lines = tail.split(b"\n")
        torn = lines.pop()
        last = next((line for line in reversed(lines) if line.strip()), b"")
        if (torn and not torn.startswith(_SAMPLE_BEGINS)) or (last and not _is_sample(last)):
            raise BadRecord(f"{self._path}: holds something other than samples; give another file")
        if not torn:
            return
        try:
            samples.decode(torn)
            os.write(self._fd, b"\n")  # only the newline was lost
        except MALFORMED:
            os.ftruncate(self._fd, size - len(torn))

    def append(self, line: bytes) -> None:
        """Write one line.

        :raises BadRecord: if it cannot be written whole; then nothing of it stays.
        """
        data = line + b"\n"
        try:
            written = os.write(self._fd, data)
            if written < len(data):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            remedy = "free space and start again" if error.errno == errno.ENOSPC else "start again elsewhere"
            raise BadRecord(f"{self._path}: {error.strerror}; {remedy}") from None

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _is_sample(line: bytes) -> bool:
    try:
        samples.decode(line)
    except MALFORMED:
        return False
    return True
