"""Pressure stall information: ``/proc/pressure/*``, and the same text in each cgroup.

Ratios are from differences of the kernel's ``total`` (microseconds of stall), never from its own averages, which
lag by ten seconds and more.
"""

import re

from cotenant.kernel import errors, paths, reading
from cotenant.kernel.file import File
from cotenant.kernel.reading import Findings, Reading
from cotenant.model.rate import Counters
from cotenant.model.sample import MissingReason, Psi

_TEXT = re.compile(
    rb"(?:some avg10=[0-9.]+ avg60=[0-9.]+ avg300=[0-9.]+ total=([0-9]{1,20})\n?)?"
    rb"(?:full avg10=[0-9.]+ avg60=[0-9.]+ avg300=[0-9.]+ total=([0-9]{1,20})\n?)?"
)
FIELDS = {"cpu": ("some",), "memory": ("some", "full"), "io": ("some", "full"), "irq": ("full",)}
"""Which lines of which resource the sample takes. ``full`` of the CPU is nonsense for a whole machine."""


def parse(data: bytes, path: str) -> tuple[int | None, int | None]:
    """Return microseconds of stall since boot (some, full); None where there is no such line.

    :raises MalformedFile: if a line is not ``some|full avg10=… avg60=… avg300=… total=…``.
    """
    match = _TEXT.fullmatch(data)
    if match is None or not data:
        raise errors.MalformedFile(path, "not lines of the form: some avg10=0.00 avg60=0.00 avg300=0.00 total=0")
    some, full = match.groups()
    return None if some is None else int(some), None if full is None else int(full)


def reason_of(error: errors.KernelError, file: File) -> MissingReason:
    """Return why a pressure file's values are unknown: without ``psi=1`` it is not there, or answers EOPNOTSUPP."""
    reason = reading.reason_of(error, file, absent="psi_disabled")
    return "psi_disabled" if reason == "unsupported" else reason


def stall_ratio(grown_usec: int | MissingReason, seconds: float | MissingReason) -> float | MissingReason:
    """Return the share of the period in which tasks stalled; at most 1, since the two clocks are read apart."""
    if isinstance(grown_usec, str):
        return grown_usec
    if isinstance(seconds, str):
        return seconds
    return min(grown_usec / (seconds * 1e6), 1.0)


class PsiReader:
    """Pressure of the whole node."""

    def __init__(self, root: paths.Root) -> None:
        self._files = {name: File(root.proc / "pressure" / name) for name in FIELDS}
        self._counters = Counters()

    def read(self, seconds: float | MissingReason) -> Reading:
        """Read all resources. ``irq`` is ``unsupported`` where only it is missing (needs interrupt time accounting)."""
        self._counters.step(seconds)
        found = Findings()
        for resource in FIELDS:
            self._read(resource, seconds, found)
        if found.missing.get("irq_full_ratio") == "psi_disabled" and (
            found.values or set(found.missing.values()) != {"psi_disabled"}
        ):
            found.missing["irq_full_ratio"] = "unsupported"
        return reading.of_group("psi", Psi, found)

    def _read(self, resource: str, seconds: float | MissingReason, found: Findings) -> None:
        file = self._files[resource]
        try:
            some, full = parse(file.read(), file.path)
        except errors.KernelError as error:
            found.put_all((f"{resource}_{kind}_ratio" for kind in FIELDS[resource]), reason_of(error, file))
            return
        for kind in FIELDS[resource]:
            field, total = f"{resource}_{kind}_ratio", some if kind == "some" else full
            grown = "malformed" if total is None else self._counters.count(field, total)
            found.put(field, stall_ratio(grown, seconds))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
