"""What protection costs offline work now: the CPU that it got, and the CPU that a quota kept from it."""

from collections.abc import Mapping

from cotenant.model.sample import Sample


def of(sample: Sample, withheld: Mapping[str, float] | None) -> tuple[float | None, float | None]:
    """Return millicores delivered and withheld; None where that is not known (withheld: at the first round)."""
    ratio, online = sample.offline.cpu_used_ratio, sample.cpu.online
    delivered = None if ratio is None or online is None else ratio * online * 1000
    return delivered, sum(withheld.values()) if withheld else None
