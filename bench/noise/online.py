"""The online work of the bench: a small server that wakes often, computes, touches memory and reads a little.

``python online.py DIRECTORY SECONDS LOG``: serves a request each 4 to 12 ms until the seconds are over or its parent
is gone: 1.5 ms of CPU time, sixteen pages of a mapped file of 48 MiB, and at every second request 4 KiB read directly
from a disk. A request's latency is from when it should have begun. Each second one line goes to LOG: the monotonic
clock, how many requests ended, their p50 and p99 in milliseconds.
"""

import mmap
import os
import pathlib
import random
import sys
import time

EVERY_SECONDS = (0.004, 0.012)
"""At random, so that two servers do not march in step."""
WORK_SECONDS = 0.0015
PAGES = 16
MAPPED_BYTES = 48 << 20
DIRECT_BYTES = 64 << 20
PAGE = 4096


def main() -> int:
    directory, seconds, log = pathlib.Path(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
    parent, ends = os.getppid(), time.monotonic() + seconds
    direct, block = os.open(directory / "online-direct", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, PAGE)
    with (directory / "online-mapped").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), MAPPED_BYTES, prot=mmap.PROT_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    rng = random.Random(os.getpid())
    due, number, spans = time.monotonic(), 0, []
    second = due + 1
    with log.open("w", buffering=1) as lines:
        while os.getppid() == parent and due < ends:
            number += 1
            work_until = time.thread_time() + WORK_SECONDS
            while time.thread_time() < work_until:
                pass
            for _ in range(PAGES):
                mapped[rng.randrange(MAPPED_BYTES // PAGE) * PAGE]
            if number % 2:
                os.preadv(direct, [block], rng.randrange(DIRECT_BYTES // PAGE) * PAGE)
            now = time.monotonic()
            spans.append(now - due)
            if now >= second:
                spans.sort()
                p50, p99 = spans[len(spans) // 2] * 1e3, spans[int(len(spans) * 0.99)] * 1e3
                lines.write(f"{now:.3f} {len(spans)} {p50:.2f} {p99:.2f}\n")
                spans, second = [], now + 1
            # What is late is not made up for: a queue that grows would hide how long one request takes.
            due = max(due + rng.uniform(*EVERY_SECONDS), now)
            time.sleep(max(0.0, due - now))
    return 0


if __name__ == "__main__":
    sys.exit(main())
