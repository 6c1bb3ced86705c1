"""How the kernel reads the text that is written to its files, with the errno that it answers.

Measured on 6.18 (``tests/double/test_agreement.py`` says the same to this machine's own files): kstrtoll for integer
files, which takes base 0 and one trailing newline and nothing else around the number; strstrip for the others.
"""

import errno
import os
import re

PAGE_BYTES = 4096
_NUMBER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_SIZE = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)([kKmMgGtT]?)")


def refusal(name: str) -> OSError:
    """Return the error of a system call: ``raise refusal("EINVAL")``."""
    number = getattr(errno, name)
    return OSError(number, os.strerror(number))


def signed(text: str) -> int:
    """Return the number of an s64 file."""
    value = _integer(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise refusal("ERANGE")
    return value


def unsigned(text: str) -> int:
    """Return the number of a u64 file."""
    if text.startswith("-"):
        raise refusal("EINVAL")
    value = _integer(text)
    if value >= 1 << 64:
        raise refusal("ERANGE")
    return value


def _integer(text: str) -> int:
    match = _NUMBER.fullmatch(text.removesuffix("\n"))
    if match is None:
        raise refusal("EINVAL")
    sign, digits = match.groups()
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") else 10
    return int(sign + digits, base) if base != 16 else int(sign + digits[2:], 16)


def size_bytes(text: str, unlimited: str) -> int | None:
    """Return bytes rounded down to pages, None for the word that means no limit."""
    word = text.strip()
    if word == unlimited:
        return None
    match = _SIZE.fullmatch(word)
    if match is None:
        raise refusal("EINVAL")
    digits, suffix = match.groups()
    value = int(digits, 0 if digits[:2].lower() == "0x" else 10)
    value <<= {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[suffix.lower()]
    return value // PAGE_BYTES * PAGE_BYTES


def cpu_list(text: str, count: int) -> frozenset[int]:
    """Return the members of a list such as ``0-3,8`` or ``0-7:1/2``; ``count`` is the number of possible ones."""
    members: set[int] = set()
    for part in text.strip().split("\n")[0].split(","):
        if not part.strip():
            continue
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+)(?::(\d+)/(\d+))?)?\s*", part)
        if match is None:
            raise refusal("EINVAL")
        low = int(match[1])
        high = int(match[2]) if match[2] else low
        used, group = (int(match[3]), int(match[4])) if match[3] else (1, 1)
        if high < low or not 0 < used <= group:
            raise refusal("EINVAL")
        if high >= count:
            raise refusal("ERANGE")
        members.update(member for member in range(low, high + 1) if (member - low) % group < used)
    return frozenset(members)


def render_list(members: frozenset[int]) -> str:
    """Return the list as the kernel prints it."""
    parts: list[list[int]] = []
    for member in sorted(members):
        if parts and parts[-1][-1] == member - 1:
            parts[-1].append(member)
        else:
            parts.append([member])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
