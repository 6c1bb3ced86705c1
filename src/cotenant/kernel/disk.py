"""Which block devices are disks at the lowest level, and of what kind each is."""

import os
import re
from collections.abc import Collection, Iterable

from cotenant.kernel import errors, paths
from cotenant.kernel.file import File
from cotenant.model.sample import DeviceKind, MissingReason

_STACKED = re.compile(r"(?:loop|ram|zram|dm-|md|sr|fd|bcache|drbd|zd)\d")
"""Devices whose requests another device serves, or memory. (cdrom and floppy drives serve nobody.)"""
_NVME = re.compile(r"nvme(\d+)(c\d+)?n(\d+)")
_CLOUD_NAME = re.compile(r"(?:vd|xvd)[a-z]|(?:rbd|nbd)\d")
_CLOUD_LINK = re.compile(r"/(?:virtio\d+|vbd-\d+|VMBUS:\S+|vmbus[^/]*)/", re.IGNORECASE)
_CLOUD_MODEL = re.compile(r"Elastic Block Store|PersistentDisk|nvme_card-pd|MSFT NVMe|QEMU HARDDISK|Virtual Disk")


class Disks:
    """The disks of a machine, looked up in ``sys/block`` once for each new name."""

    def __init__(self, root: paths.Root) -> None:
        self._block = os.fspath(root.sys / "block")
        self._names: frozenset[str] = frozenset()
        self._lowest: tuple[str, ...] = ()
        self.accounted: frozenset[str] = frozenset()
        """Disks to which the kernel books what groups read and write: of NVMe multipath the head, not the paths."""
        self._kinds: dict[str, DeviceKind | MissingReason] = {}

    def lowest_level(self, names: Collection[str]) -> tuple[str, ...]:
        """Return those names that are disks whose requests no other device serves, in their order.

        Left out: partitions, dm, md, loop, ram, zram, anything with slaves; and of NVMe multipath the head, when the
        paths that carry its requests are there.
        """
        known = frozenset(names)
        if known != self._names:
            listed = self._listed()
            paths_of = {match.group(1, 3) for match in map(_NVME.fullmatch, names) if match and match[2]}
            self._lowest = tuple(name for name in names if self._is_lowest(name, known, listed, paths_of))
            matches = {name: _NVME.fullmatch(name) for name in names}
            heads = {name for name, match in matches.items() if match and match.group(1, 3) in paths_of}
            self.accounted = frozenset(
                {*self._lowest, *heads} - {n for n, match in matches.items() if match and match[2]}
            )
            self._kinds = {name: kind for name, kind in self._kinds.items() if name in known}
            self._names = known
        return self._lowest

    def lacks(self, names: Collection[str]) -> bool:
        """Return whether sysfs has a device that is none of these names."""
        return not self._listed() <= {name.replace("/", "!") for name in names}

    def _listed(self) -> frozenset[str]:
        try:
            return frozenset(os.listdir(self._block))
        except OSError:
            return frozenset()

    def _is_lowest(
        self, name: str, names: frozenset[str], listed: frozenset[str], paths_of: set[tuple[str | None, ...]]
    ) -> bool:
        if _STACKED.match(name):
            return False
        # sysfs writes the slash of a name (cciss/c0d0) as an exclamation mark
        if name.replace("/", "!") not in listed if listed else _is_partition(name, names):
            return False
        match = _NVME.fullmatch(name)
        if match and not match[2] and match.group(1, 3) in paths_of:
            return False
        try:
            return not os.listdir(f"{self._block}/{name.replace('/', '!')}/slaves")
        except OSError:
            return True

    def kind(self, name: str) -> DeviceKind | MissingReason:
        """Return the kind of a disk, or why it is unknown. virtio and Xen disks claim to be rotational: ``cloud``."""
        if name not in self._kinds:
            self._kinds[name] = self._find_kind(name)
        return self._kinds[name]

    def _find_kind(self, name: str) -> DeviceKind | MissingReason:
        directory = f"{self._block}/{name.replace('/', '!')}"
        if _CLOUD_NAME.match(name) or self._is_served_by_a_hypervisor(directory):
            return "cloud"
        if _NVME.fullmatch(name):
            return "nvme"
        try:
            text = _read(f"{directory}/queue/rotational")
        except errors.FileError as error:
            return "unsupported" if error.gone else error.reason
        kinds: dict[str, DeviceKind] = {"0": "ssd", "1": "spinning"}
        return kinds.get(text, "malformed")

    def _is_served_by_a_hypervisor(self, directory: str) -> bool:
        try:
            if _CLOUD_LINK.search(os.readlink(directory) + "/"):
                return True
        except OSError:
            pass  # a plain directory: a copy of a machine's files
        try:
            return bool(_CLOUD_MODEL.search(_read(f"{directory}/device/model")))
        except errors.FileError:
            return False


def numbers(root: paths.Root, names: Iterable[str]) -> dict[str, str]:
    """Return ``major:minor`` by name of those disks whose number can be read."""
    found = {}
    for name in names:
        try:
            found[name] = _read(f"{os.fspath(root.sys / 'block')}/{name.replace('/', '!')}/dev")
        except errors.FileError:
            continue  # gone since it was sampled: nobody can be held back on it
    return found


def _is_partition(name: str, names: frozenset[str]) -> bool:
    """Return whether a listed name is the disk whose partition this is: sda1 of sda, nvme0n1p2 of nvme0n1."""
    disk = name.rstrip("0123456789")
    if disk == name:
        return False
    return disk in names or (disk.endswith("p") and disk[:-1] in names and disk[-2:-1].isdigit())


def _read(path: str) -> str:
    file = File(path)
    try:
        return file.read().decode("utf-8", "replace").strip()
    finally:
        file.close()
