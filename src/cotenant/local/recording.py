"""Files of samples, one JSON object a line, read back one at a time."""

import pathlib
import sys
from collections.abc import Iterator

import msgspec

from cotenant.detect import errors
from cotenant.model import sample
from cotenant.units.malformed import MALFORMED, problem


def read(path: pathlib.Path) -> Iterator[tuple[int, sample.Sample]]:
    """Yield line number and sample of each line that is not blank; ``-`` is standard input.

    :raises BadSamples: at the first line that is not a sample, or if the file cannot be read.
    :raises TornSamples: at the end, when what is left is half a line: whoever wrote it was ended meanwhile.
    """
    try:
        source = sys.stdin.buffer if str(path) == "-" else path.open("rb")
    except OSError as error:
        raise errors.BadSamples(
            f"{path}: cannot be read: {error.strerror}; give a file that `cotenant record` wrote"
        ) from error
    with source:
        lines = enumerate(source, 1)
        while True:
            try:
                number, line = next(lines, (0, b""))
            except OSError as error:
                raise errors.BadSamples(
                    f"{path}: cannot be read: {error.strerror}; give a file that `cotenant record` wrote"
                ) from error
            if number == 0:
                return
            if not line.strip():
                continue
            try:
                yield number, sample.decode(line)
            except MALFORMED as error:
                if not line.endswith(b"\n") and _is_torn(line):
                    raise errors.TornSamples(
                        f"{path}:{number}: the last line ends in the middle and was left out; all before it was read"
                    ) from error
                wrong = problem(error, line, sample.Sample)
                raise errors.BadSamples(
                    f"{path}:{number}: not a sample: {wrong}; give lines as `cotenant record` writes them"
                ) from error


def _is_torn(line: bytes) -> bool:
    """Return whether the line is the beginning of an object: one that is whole is no sample, and never was."""
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        msgspec.json.decode(line)
    except MALFORMED:
        return True
    return False
