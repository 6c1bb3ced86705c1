import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.units import cpulist


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("\n", set()),
        ("0\n", {0}),
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("3,1-2", {1, 2, 3}),
        ("0-7:2/4", {0, 1, 4, 5}),
    ],
)
def test_parse(text: str, cpus: set[int]) -> None:
    assert cpulist.parse(text) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "0-99999999", "0-3:0/2", "0-3:3/2", "1 2", "²"])
def test_bad_text_names_itself(text: str) -> None:
    with pytest.raises(cpulist.BadCpuList, match="CPU list"):
        cpulist.parse(text)


@given(st.frozensets(st.integers(0, 300)))
def test_render_is_undone_by_parse(cpus: frozenset[int]) -> None:
    assert cpulist.parse(cpulist.render(cpus)) == cpus


def test_render_is_the_kernels_form() -> None:
    assert cpulist.render([8, 0, 1, 2, 3, 10, 11]) == "0-3,8,10-11"
    assert cpulist.render([]) == ""
