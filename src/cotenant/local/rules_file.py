"""A file of rules on this machine: read and validated."""

import os
import pathlib
import stat
from collections.abc import Sequence

from cotenant.detect import errors, node, parser, rules


def read_text(path: pathlib.Path, *, plain: bool = False) -> str:
    """Return the text of a file of rules; ``plain`` refuses a pipe or a device, which could keep the caller waiting.

    :raises UnreadableRules: if it cannot be read, or is not UTF-8.
    """

    def refused(message: str) -> errors.UnreadableRules:
        return errors.UnreadableRules([errors.Problem(str(path), 0, "", message)])

    def opened(name: str, flags: int) -> int:
        return os.open(name, flags | (os.O_NONBLOCK | os.O_NOCTTY if plain else 0))

    try:
        with open(path, "rb", opener=opened) as file:
            if plain and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise refused("not a plain file, which it must be to be watched")
            raw = file.read(node.MAX_BYTES + 1)
    except OSError as error:
        raise refused(f"cannot be read: {error.strerror}") from error
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise refused("is not UTF-8 text") from error


def load(path: pathlib.Path, period_s: float = rules.PERIOD_SECONDS) -> list[parser.Parsed]:
    """Return the rules of each document of a file.

    :raises BadRules: if it cannot be read, or with every problem found in it.
    """
    return parser.parse(read_text(path), str(path), period_s)


def for_one_host(parsed: Sequence[parser.Parsed]) -> parser.Parsed:
    """Return the rules that serve a host without node labels: the only ones, or those that no selector narrows.

    :raises BadRules: if there are several and each has a nodeSelector.
    """
    if len(parsed) == 1:
        return parsed[0]
    chosen = rules.select([one.rules for one in parsed], {})
    if chosen is None:
        message = "every document has a nodeSelector; one is needed without, for a host that has no labels"
        raise errors.BadRules([errors.Problem(parsed[0].file, 1, "spec.nodeSelector", message)])
    return next(one for one in parsed if one.rules is chosen)
