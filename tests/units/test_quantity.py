from typing import Any

import pytest

from cotenant.units import quantity


@pytest.mark.parametrize(
    ("text", "millicores"),
    [("500m", 500), ("1.5", 1500), (4, 4000), ("100u", 1), ("2k", 2_000_000), ("1e2", 100_000), (".5", 500)],
)
def test_millicores(text: str | int, millicores: int) -> None:
    assert quantity.millicores(text) == millicores


@pytest.mark.parametrize(
    ("text", "value"), [("2Gi", 2**31), ("1500m", 2), ("1E", 10**18), ("12e6", 12_000_000), (5, 5)]
)
def test_whole(text: str | int, value: int) -> None:
    assert quantity.whole(text) == value


@pytest.mark.parametrize("text", ["", "x", "1Q", "1 Gi", "--1", "0x10", "1e", "NaN", None, True, [], {"cpu": 1}])
def test_bad_quantity(text: Any) -> None:
    """Annotations hold what anybody wrote, and not only texts."""
    with pytest.raises(quantity.BadQuantity, match="quantity"):
        quantity.parse(text)


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("500ms", 0.5), ("2m30s", 150), ("1.5h", 5400)])
def test_seconds(text: str, seconds: float) -> None:
    assert quantity.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "s", "0s", "-1s", "1s2", "1 s"])
def test_bad_duration(text: str) -> None:
    with pytest.raises(quantity.BadQuantity, match="duration"):
        quantity.seconds(text)
