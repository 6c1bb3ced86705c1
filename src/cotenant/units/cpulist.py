"""CPU lists as the kernel writes them: ``0-3,8``."""

from collections.abc import Iterable

from cotenant.units import errors

MAX_CPU = 1 << 16
"""No kernel has more CPUs than this; a larger number in a list is a mistake, not a machine."""


class BadCpuList(errors.CotenantError):
    """The text is not a CPU list."""


def parse(text: str) -> frozenset[int]:
    """Return the CPUs of a list; empty text (one trailing newline allowed) is the empty set.

    The kernel's stride form ``0-7:1/2`` is understood too.

    :raises BadCpuList: if the text is not a list, a range runs backwards, or a CPU is past :data:`MAX_CPU`.
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        part = part.strip()
        if part:
            cpus.update(_range(part, text))
    return frozenset(cpus)


def _range(part: str, text: str) -> Iterable[int]:
    bounds, _, stride = part.partition(":")
    first, dash, last = bounds.partition("-")
    try:
        low = _number(first)
        high = _number(last) if dash else low
        used, group = (_number(n) for n in stride.split("/")) if stride else (1, 1)
    except ValueError:
        raise BadCpuList(f"CPU list {text.strip()!r}: {part!r} is not a number or a range like 0-3") from None
    if low > high or high > MAX_CPU or not 0 < used <= group:
        raise BadCpuList(f"CPU list {text.strip()!r}: range {part!r} is not possible")
    return (cpu for cpu in range(low, high + 1) if (cpu - low) % group < used)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(text)
    return int(text)


def render(cpus: Iterable[int]) -> str:
    """Return the shortest list, ascending, as the kernel prints it; the empty set is the empty string."""
    parts: list[str] = []
    ordered = sorted(set(cpus))
    start = 0
    for index, cpu in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == cpu + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == cpu else f"{first}-{cpu}")
        start = index + 1
    return ",".join(parts)
