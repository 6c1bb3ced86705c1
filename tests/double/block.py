"""The block controller: v1 throttle and cost files, v2 ``io.*``."""

import re
from typing import Any

from tests.double.groups import File, Group, Integer, ReadOnly, pressure
from tests.double.text import refusal

_DEVICE = re.compile(r"(\d+):(\d+)")
LIMITS = ("rbps", "wbps", "riops", "wiops")


def device_of(group: Group, word: str) -> str:
    """Return the device that a line names."""
    if _DEVICE.fullmatch(word) is None:
        raise refusal("EINVAL")
    if word not in group.kernel.devices:
        raise refusal("ENODEV")
    return word


class PerDevice(File):
    """A file with one line for each device that has a value."""

    def create(self, group: Group) -> None:
        group.values[self.name] = {}

    def read(self, group: Group) -> str:
        return "".join(f"{device} {value}\n" for device, value in group.values[self.name].items())

    def put(self, group: Group, value: Any) -> None:
        device, setting = value
        if setting is None:
            group.values[self.name].pop(device, None)
        else:
            group.values[self.name][device] = setting


class Throttle(PerDevice):
    """v1 ``blkio.throttle.*_device``: ``8:0 1048576``; 0 takes the line away."""

    def parse(self, group: Group, text: str) -> tuple[str, int | None]:
        words = text.split()
        device = device_of(group, words[0] if words else "")
        if len(words) != 2 or not words[1].isdigit():
            raise refusal("EINVAL")
        return device, int(words[1]) or None


class IoMax(PerDevice):
    """v2 ``io.max``: keys that are not named keep their value; all ``max`` takes the line away."""

    on_root = False

    def read(self, group: Group) -> str:
        lines = []
        for device, limits in group.values[self.name].items():
            words = (f"{key}={'max' if limits[key] is None else limits[key]}" for key in LIMITS)
            lines.append(f"{device} {' '.join(words)}\n")
        return "".join(lines)

    def parse(self, group: Group, text: str) -> tuple[str, dict[str, int | None] | None]:
        words = text.split()
        device = device_of(group, words[0] if words else "")
        limits = dict(group.values[self.name].get(device, dict.fromkeys(LIMITS)))
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key not in LIMITS or not (value == "max" or value.isdigit()):
                raise refusal("EINVAL")
            if value == "0":
                raise refusal("ERANGE")
            limits[key] = None if value == "max" else int(value)
        return device, limits if any(limit is not None for limit in limits.values()) else None


class IoWeight(PerDevice):
    """``default 100`` and a line for each device (v2 ``io.weight``, openEuler and Anolis ``blkio.cost.weight``)."""

    on_root = False

    def __init__(self, name: str, *, prefix: str) -> None:
        super().__init__(name)
        self.prefix = prefix

    def create(self, group: Group) -> None:
        group.values[self.name] = {"default": 100}

    def read(self, group: Group) -> str:
        devices = dict(group.values[self.name])
        default = devices.pop("default")
        return f"{self.prefix}{default}\n" + "".join(f"{key} {value}\n" for key, value in devices.items())

    def parse(self, group: Group, text: str) -> tuple[str, int | None]:
        words = text.split()
        if len(words) == 1:
            words.insert(0, "default")
        if len(words) != 2:
            raise refusal("EINVAL")
        key = words[0] if words[0] == "default" else device_of(group, words[0])
        if words[1] == "default" and key != "default":
            return key, None
        if not words[1].isdigit():
            raise refusal("EINVAL")
        if not 1 <= int(words[1]) <= 10000:
            raise refusal("ERANGE")
        return key, int(words[1])


class Cost(PerDevice):
    """``cost.qos`` and ``cost.model`` at the root: a line for each device, keys that are not named keep their value."""

    on_child = False

    def read(self, group: Group) -> str:
        lines = group.values[self.name].items()
        return "".join(f"{device} {' '.join(f'{k}={v}' for k, v in keys.items())}\n" for device, keys in lines)

    def parse(self, group: Group, text: str) -> tuple[str, dict[str, str]]:
        words = text.split()
        device = device_of(group, words[0] if words else "")
        pairs = [word.partition("=") for word in words[1:]]
        if any(not separator for _, separator, _ in pairs):
            raise refusal("EINVAL")
        keys = dict(group.values[self.name].get(device, {}))
        keys.update({key: value for key, _, value in pairs})
        return device, keys


def files(version: int, vendor: str) -> list[File]:
    """Return the block controller's files of one vendor's kernel."""
    if version == 2:
        return [
            IoMax("io.max"),
            IoWeight("io.weight", prefix="default "),
            ReadOnly("io.stat", lambda group: ""),
            ReadOnly("io.pressure", pressure),
            Cost("io.cost.qos"),
            Cost("io.cost.model"),
        ]
    kinds = ("read_bps", "write_bps", "read_iops", "write_iops")
    found: list[File] = [Throttle(f"blkio.throttle.{kind}_device") for kind in kinds]
    found.append(Integer("blkio.bfq.weight", 100, (1, 1000), error="ERANGE", on_root=False, unsigned=True))
    found.append(ReadOnly("blkio.throttle.io_service_bytes", lambda group: "Total 0\n"))
    if vendor.startswith(("openeuler", "anolis")):
        found += [Cost("blkio.cost.qos"), Cost("blkio.cost.model"), IoWeight("blkio.cost.weight", prefix="")]
    return found
