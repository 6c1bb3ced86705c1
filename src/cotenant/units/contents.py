"""What two texts of one kernel file have to do with each other: the same value is written in several ways.

The kernel clamps, rounds to pages, sorts CPU lists and answers with every device where one was written. Comparing
before writing needs the meaning, not the bytes.
"""

import mmap
import re

from cotenant.units import cpulist

PAGE_COUNTER_MAX_BYTES = (2**63 - 1) // mmap.PAGESIZE * mmap.PAGESIZE
"""What v1 memory limits read when there is none."""

KEYED = re.compile(
    r"^(io\.(max|weight|bfq\.weight|latency|cost\.(qos|model))"
    r"|blkio\.(throttle\..*_device|weight_device|cost\.(weight|qos|model)|inf\.(qos|weight))|schemata)$"
)
"""Files of one line per device (or resource): a write changes its own lines and leaves the others."""

TOGGLES = frozenset({"sched_features", "features", "cgroup.subtree_control"})
"""Files that list what is on, and take one word that turns one thing on or off."""

_CPU_LIST = frozenset({"cpuset.cpus", "cpuset.mems", "cpuset.cpus.exclusive", "cpuset.preferred_cpus"})
_V1_MEMORY_BYTES = re.compile(r"^memory\.(memsw\.|kmem\.(tcp\.)?)?(soft_)?limit_in_bytes$")
_V2_MEMORY_BYTES = re.compile(r"^memory\.(min|low|high|max|swap\.(max|high)|zswap\.max)$")
_NO_LIMIT = re.compile(r"=(max|0)\b")


def same(file: str, wanted: str, current: str) -> bool:
    """Return whether writing ``wanted`` to a file that reads ``current`` would change nothing.

    ``file`` is the file's name without its directory.
    """
    if wanted.strip() == current.strip():
        return True
    if KEYED.match(file):
        have = lines_of(file, current)
        return all(_same_line(value, have.get(key)) for key, value in lines_of(file, wanted).items())
    if file in TOGGLES:
        return all(_toggled(word, current.split()) for word in wanted.split())
    if file == "cpu.max":
        return _bandwidth(wanted) == _bandwidth(current) or (
            len(wanted.split()) == 1 and wanted.split() == current.split()[:1]
        )
    return normal(file, wanted) == normal(file, current)


def opposite(word: str) -> str:
    """Return the word that undoes one word of a :data:`TOGGLES` file: ``+cpu`` and ``-cpu``, ``X`` and ``NO_X``."""
    if word[:1] in "+-":
        return ("-" if word[0] == "+" else "+") + word[1:]
    return word.removeprefix("NO_") if word.startswith("NO_") else f"NO_{word}"


def _toggled(word: str, current: list[str]) -> bool:
    if word.startswith("-"):
        return word[1:] not in current
    return word.removeprefix("+") in current


def normal(file: str, text: str) -> str:
    """Return the one way to write a single value of a file, as the kernel would read it back."""
    word = " ".join(text.split())
    if file in _CPU_LIST:
        try:
            return cpulist.render(cpulist.parse(word))
        except cpulist.BadCpuList:
            return word
    number = _integer(word)
    if _V1_MEMORY_BYTES.match(file) or _V2_MEMORY_BYTES.match(file):
        if word == "max" or (number is not None and (number < 0 or number >= PAGE_COUNTER_MAX_BYTES)):
            return "max"
        return word if number is None else str(number // mmap.PAGESIZE * mmap.PAGESIZE)
    if number is None:
        return word
    if file == "cpu.shares":
        number = min(max(number, 2), 262144)
    elif file == "cpu.cfs_quota_us":
        number = max(number, -1)
    return str(number)


def _integer(word: str) -> int | None:
    """Parse like the kernel's base 0: ``01`` is octal one, ``0x1`` is one."""
    match = re.fullmatch(r"([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", word)
    if match is None:
        return None
    digits = match[2]
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") and len(digits) > 1 else 10
    return int(digits, base) * (-1 if match[1] == "-" else 1)


def _bandwidth(text: str) -> tuple[str, str]:
    words = text.split()
    return (words[0] if words else "", words[1] if len(words) > 1 else "100000")


def lines_of(file: str, text: str) -> dict[str, str]:
    """Return the lines of a keyed file by their device (``8:0``) or resource (``L3``, then ``L3:0`` per domain).

    A line of one word, as ``io.weight`` takes for all devices, is under ``default``.
    """
    lines: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if file == "schemata":
            resource, _, domains = "".join(words).partition(":")
            for domain in filter(None, domains.split(";")):
                number, _, value = domain.partition("=")
                lines[f"{resource}:{number}"] = value.lstrip("0") or "0"
        elif len(words) == 1:
            lines["default"] = words[0]
        else:
            lines[words[0]] = " ".join(words[1:])
    return lines


def cleared(file: str) -> str:
    """Return what a device's line of a keyed file is written as where nothing is to be said of the device any more."""
    if file == "io.max":
        return "rbps=max wbps=max riops=max wiops=max"
    if file == "io.latency":
        return "target=0"
    if ".cost.qos" in file or ".cost.model" in file:
        return "enable=0" if file.endswith("qos") else "ctrl=auto"
    return "default" if "weight" in file else "0"


def _same_line(wanted: str, current: str | None) -> bool:
    if current is None:
        # A device that has no line has no limit.
        return wanted in ("0", "max", "default") or (
            "=" in wanted and all(_NO_LIMIT.search(pair) for pair in wanted.split())
        )
    if wanted == current:
        return True
    if "=" not in wanted:
        return False
    have = dict(pair.partition("=")[::2] for pair in current.split())
    asked = dict(pair.partition("=")[::2] for pair in wanted.split())
    return all(key in have and _same_number(value, have[key]) for key, value in asked.items())


def _same_number(left: str, right: str) -> bool:
    if left == right:
        return True
    try:
        return float(left) == float(right)
    except ValueError:
        return False
