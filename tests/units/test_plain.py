"""Plain data."""

from cotenant.units import plain


def test_null_members_are_left_out_at_every_depth() -> None:
    value = {"a": None, "b": {"c": None, "d": 0}, "e": [{"f": None}, None, ""], 1: False}
    assert plain.without_nulls(value) == {"b": {"d": 0}, "e": [{}, None, ""], "1": False}
    assert plain.without_nulls(value, elements=True) == {"b": {"d": 0}, "e": [{}, ""], "1": False}
    assert plain.without_nulls(None) is None
    assert value["a"] is None
