"""Packets that the node lost or deferred: the soft-interrupt backlog, and what its network cards dropped."""

import os
import re

from cotenant.kernel import errors, paths, reading
from cotenant.kernel.file import File, number
from cotenant.kernel.reading import Findings, Reading
from cotenant.model.rate import Counters, Value
from cotenant.model.sample import MissingReason, Net

_HEX = re.compile(rb"[0-9a-fA-F]{1,8}")
_CPU_COLUMN = 12
"""The CPU's number, since 5.10; before, lines are in order of the CPUs on line."""
_VIRTUAL = re.compile(
    r"lo$|veth|docker|br-|br\d|virbr|cali|cni|cbr|flannel|cilium|lxc|tun|tap|ifb|dummy|bond|team|vxlan|geneve|wg|nerdctl"
    r"|kube-|nodelocaldns|sit|gre|ip6|ipvlan|macv|.*[.@]"
)
"""Interfaces without hardware, by name: only for a tree that has no ``sys/class/net``."""


def parse_softnet(data: bytes, path: str) -> dict[int, tuple[int, int]]:
    """Return packets dropped and times that the budget ran out, by CPU; each a 32-bit counter.

    :raises MalformedFile: if a line is not at least three hexadecimal numbers.
    """
    counts: dict[int, tuple[int, int]] = {}
    for index, line in enumerate(data.splitlines()):
        words = line.split()
        if len(words) < 3 or not all(map(_HEX.fullmatch, words)):
            raise errors.MalformedFile(path, f"line {index + 1} is not hexadecimal counts")
        cpu = int(words[_CPU_COLUMN], 16) if len(words) > _CPU_COLUMN else index
        counts[cpu] = (int(words[1], 16), int(words[2], 16))
    if not counts:
        raise errors.MalformedFile(path, "empty")
    return counts


def parse_dev(data: bytes, path: str) -> dict[str, int]:
    """Return packets dropped, received and sent, by interface.

    :raises MalformedFile: if the header is missing, or an interface's counters are not numbers.
    """
    lines = data.splitlines()
    if len(lines) < 2 or b"|" not in lines[1]:
        raise errors.MalformedFile(path, "the two header lines are missing")
    dropped: dict[str, int] = {}
    for line in lines[2:]:
        name, colon, rest = line.rpartition(b":")
        words = rest.split()
        if not colon or len(words) < 12:
            raise errors.MalformedFile(path, "a line is not: NAME: and sixteen counts")
        dropped[name.strip().decode("utf-8", "replace")] = number(words[3], path) + number(words[11], path)
    return dropped


class NetReader:
    """Backlog drops and squeezes of all CPUs, and drops of the physical network cards."""

    def __init__(self, root: paths.Root) -> None:
        self._softnet = File(root.proc / "net" / "softnet_stat")
        self._dev = File(root.proc / "net" / "dev")
        self._class = os.fspath(root.sys / "class" / "net")
        self._physical: dict[str, bool] = {}
        self._counters = Counters()

    def read(self, seconds: float | MissingReason) -> Reading:
        """Read both files."""
        self._counters.step(seconds)
        found = Findings()
        self._read_softnet(found)
        self._read_dev(found)
        return reading.of_group("net", Net, found)

    def _read_softnet(self, found: Findings) -> None:
        fields = ("softnet_dropped_per_sec", "softnet_squeezed_per_sec")
        try:
            counts = parse_softnet(self._softnet.read(), self._softnet.path)
        except errors.KernelError as error:
            found.put_all(fields, reading.reason_of(error, self._softnet))
            return
        for column, field in enumerate(fields):
            rates = [self._counters.rate(f"{field} {cpu}", pair[column], bits=32) for cpu, pair in counts.items()]
            found.put(field, _sum(rates))

    def _read_dev(self, found: Findings) -> None:
        try:
            dropped = parse_dev(self._dev.read(), self._dev.path)
        except errors.KernelError as error:
            found.put("nic_dropped_per_sec", reading.reason_of(error, self._dev))
            return
        self._physical = {name: self._physical.get(name, self._is_physical(name)) for name in dropped}
        rates = [self._counters.rate(name, count) for name, count in dropped.items() if self._physical[name]]
        found.put("nic_dropped_per_sec", _sum(rates) if rates else "unsupported")

    def _is_physical(self, name: str) -> bool:
        if os.path.isdir(self._class):
            return os.path.lexists(f"{self._class}/{name}/device")
        return not _VIRTUAL.match(name)

    def close(self) -> None:
        self._softnet.close()
        self._dev.close()


def _sum(rates: list[Value]) -> Value:
    """Return the sum of what is known; a CPU or card that has just appeared adds nothing, a reset makes it unknown."""
    total, reason = 0.0, None
    known = False
    for rate in rates:
        if not isinstance(rate, str):
            total, known = total + rate, True
        elif rate != "first_sample":
            return rate
        else:
            reason = rate
    return total if known or reason is None else reason
