import pytest

from cotenant.units import limit
from cotenant.units.limit import Limit


@pytest.mark.parametrize(("text", "value"), [("max\n", None), ("-1\n", None), ("-5", None), ("0", 0), ("4096\n", 4096)])
def test_parse(text: str, value: int | None) -> None:
    assert Limit.parse(text) == Limit(value)


def test_no_limit_is_looser_than_every_limit() -> None:
    assert Limit(0) < Limit(1) < limit.NONE
    assert not limit.NONE < limit.NONE
    assert min(limit.NONE, Limit(3)) == Limit(3)


def test_text_for_both_versions() -> None:
    assert (limit.NONE.v1(), limit.NONE.v2(), Limit(7).v1(), Limit(7).v2()) == ("-1", "max", "7", "7")


def test_text_that_is_no_limit() -> None:
    with pytest.raises(ValueError, match="many"):
        Limit.parse("many")
