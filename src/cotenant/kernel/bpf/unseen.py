"""Requests that a program still holds to be under way, and that the disk is done with: nobody saw them complete.

A kernel may leave a program out (``docs/ebpf.md``, "What is not counted"). Its request would look as if it hung, and on
a disk that is idle otherwise for ever.
"""

import os
from collections.abc import Iterator, Mapping

from cotenant.kernel import errors, paths
from cotenant.kernel.file import File


class Unseen:
    """Tells them by the disk's own count, which is asked only where something has been under way since the last read.

    A request that was there before the disk said that it had none, and is there after, completed unseen.
    """

    def __init__(self, root: paths.Root) -> None:
        self._directory = os.fspath(root.sys / "dev" / "block")
        self._before: dict[bytes, int] = {}
        """By the request's address: when it was issued."""
        self._done: dict[bytes, int] = {}
        """Those that were there when their disk last said that it had none."""

    def over(self, issued: Mapping[bytes, tuple[int, int]], answering: frozenset[int]) -> tuple[set[bytes], set[bytes]]:
        """Return which of the requests are not under way any more, and which of these are certain to stay.

        ``issued`` has disk and time of issue by address; ``answering`` are the disks that completed something in this
        period. A request of the first set, but not the second, may just have completed.
        """
        old = {key for key, (_, issued_ns) in issued.items() if self._before.get(key) == issued_ns}
        asked = {device for key, (device, _) in issued.items() if key in old or device not in answering}
        idle = {device for device in asked if self._is_idle(device)}
        over = {key for key, (device, _) in issued.items() if device in idle}
        certain = {key for key, (_, issued_ns) in issued.items() if self._done.get(key) == issued_ns}
        self._before = {key: issued_ns for key, (_, issued_ns) in issued.items() if key not in certain}
        self._done = {key: issued[key][1] for key in over - certain}
        return over | certain, certain

    def _is_idle(self, device: int) -> bool:
        """Return whether a disk says that it has no request.

        One that does not count never does, nor one without a directory: hidden paths of NVMe multipath have none.
        """
        directory = f"{self._directory}/{device >> 32}:{device & 0xFFFF_FFFF}"
        return list(_numbers(f"{directory}/queue/iostats")) == [1] and not any(_numbers(f"{directory}/inflight", 1))


def _numbers(path: str, otherwise: int = 0) -> Iterator[int]:
    """Yield the numbers in a file, or one other number where it cannot be read."""
    file = File(path)
    try:
        yield from [int(word) for word in file.read().split()]
    except (errors.KernelError, ValueError):
        yield otherwise
    finally:
        file.close()
