import typing

import msgspec
import pytest

from cotenant.detect import catalogue, errors
from cotenant.model import sample


def numbers_of(struct: type[msgspec.Struct], prefix: str = "") -> set[str]:
    found = set()
    for field in msgspec.structs.fields(struct):
        name = f"{prefix}{field.encode_name}"
        kinds = typing.get_args(field.type) or (field.type,)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found |= numbers_of(field.type, f"{name}.")
        elif int in kinds or (float in kinds and typing.get_origin(field.type) is not dict):
            found.add(name)
    return found


def test_every_number_of_a_sample_is_a_signal_or_said_not_to_be() -> None:
    assert numbers_of(sample.Sample) == set(catalogue.SIGNALS) | catalogue.NOT_SIGNALS
    assert numbers_of(sample.Device) == set(catalogue.DEVICE_FIELDS)


def test_only_available_memory_falls() -> None:
    assert [s.name for s in catalogue.SIGNALS.values() if s.direction == "falling"] == ["memory.available_ratio"]


def test_ratios_are_marked_except_the_relative_probe() -> None:
    for signal in catalogue.SIGNALS.values():
        assert signal.ratio == (signal.name.endswith("_ratio") and signal.name != "llc.probe_ratio"), signal.name


def test_a_device_signal_is_found_by_its_path() -> None:
    assert catalogue.find("block.devices.nvme0n1.queue_p99_usec").unit == "µs"


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("block.p99_usecs", "block.p99_usec"),
        ("psi.io_some", "psi.io_some_ratio"),
        ("online.psi.memory_ful_ratio", "online.psi.memory_full_ratio"),
        ("blockP99Usec", "block.p99_usec"),
        ("block.devices.vda.p99", "block.devices.vda.p99_usec"),
    ],
)
def test_an_unknown_signal_is_answered_with_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(errors.UnknownSignal) as caught:
        catalogue.find(wrong)
    assert wrong in str(caught.value)
    assert caught.value.nearest == nearest
