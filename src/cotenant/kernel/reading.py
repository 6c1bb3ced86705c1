"""What a reader hands over: a value for each field, or the reason for which there is none."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Protocol

from cotenant.kernel import errors
from cotenant.kernel.file import File
from cotenant.model.sample import MissingReason


class Findings:
    """The fields of one group of the sample."""

    __slots__ = ("missing", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missing: dict[str, MissingReason] = {}

    def put(self, field: str, value: float | MissingReason) -> None:
        """Take a number as the field's value, and a reason as why it has none."""
        if isinstance(value, str):
            self.missing[field] = value
        else:
            self.values[field] = value

    def put_all(self, fields: Iterable[str], reason: MissingReason) -> None:
        """Make all these fields unknown for one reason."""
        for field in fields:
            self.missing[field] = reason


@dataclasses.dataclass(slots=True)
class Reading:
    """Some groups of the sample by name, and why what they lack is unknown (by dotted name, from the top)."""

    groups: dict[str, Any]
    missing: dict[str, MissingReason]


def of_group(group: str, struct: type, findings: Findings) -> Reading:
    """Return one group's reading. A reason that all its fields share is named once, for the group."""
    reasons = set(findings.missing.values())
    if not findings.values and len(reasons) == 1:
        missing: dict[str, MissingReason] = {group: reasons.pop()}
    else:
        missing = {f"{group}.{field}": reason for field, reason in findings.missing.items()}
    return Reading({group: struct(**findings.values)}, missing)


class Reader(Protocol):
    """One source of the sample."""

    def read(self, seconds: float | MissingReason) -> Reading:
        """Read now. ``seconds`` is the time since the last read, or why there is no rate to be had from it.

        A file that cannot be read makes fields unknown; it is never an error.
        """
        ...

    def close(self) -> None:
        """Release descriptors."""
        ...


def reason_of(error: errors.KernelError, file: File, absent: MissingReason = "unsupported") -> MissingReason:
    """Return why a file's values are unknown. A file that never was is ``absent``: this kernel does not have it."""
    if isinstance(error, errors.FileError) and error.gone and not file.seen:
        return absent
    return error.reason
