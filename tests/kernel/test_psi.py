import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.kernel import errors, psi

LINE = "{} avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LINE.format("some", 12) + LINE.format("full", 5), (12, 5)),
        (LINE.format("some", 12), (12, None)),  # the CPU's before 5.13
        (LINE.format("full", 7), (None, 7)),  # irq
        (LINE.format("some", 2**64 - 1), (2**64 - 1, None)),
    ],
)
def test_a_pressure_file_gives_its_totals(text, expected):
    assert psi.parse(text.encode(), "x") == expected


@pytest.mark.parametrize("text", ["", "\n", "some", "some total=5\n", LINE.format("some", -1), LINE.format("most", 1)])
def test_other_text_is_malformed(text):
    with pytest.raises(errors.MalformedFile):
        psi.parse(text.encode(), "x")


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_parse_or_are_malformed(data):
    with contextlib.suppress(errors.MalformedFile):
        psi.parse(data, "x")


def test_the_ratio_is_stall_time_over_the_period(tree):
    reader = psi.PsiReader(tree.root)
    assert reader.read("first_sample").missing["psi.io_some_ratio"] == "first_sample"
    some = int(tree.read("proc/pressure/io").split("total=")[1].split()[0])
    tree.replace("proc/pressure/io", f"total={some}", f"total={some + 500_000}")
    values = reader.read(2.0).groups["psi"]
    assert values.io_some_ratio == 0.25
    assert values.memory_full_ratio == 0.0
    assert values.irq_full_ratio is None


def test_stall_never_exceeds_the_period(tree):
    reader = psi.PsiReader(tree.root)
    reader.read("first_sample")
    tree.write("proc/pressure/cpu", LINE.format("some", 10**15))
    assert reader.read(1.0).groups["psi"].cpu_some_ratio == 1.0


def test_a_total_that_falls_is_a_reset(tree):
    tree.write("proc/pressure/memory", LINE.format("some", 100) + LINE.format("full", 100))
    reader = psi.PsiReader(tree.root)
    reader.read("first_sample")
    tree.write("proc/pressure/memory", LINE.format("some", 50) + LINE.format("full", 150))
    reading = reader.read(1.0)
    assert reading.missing["psi.memory_some_ratio"] == "reset"
    assert reading.groups["psi"].memory_full_ratio == pytest.approx(50e-6)


def test_without_pressure_files_psi_is_disabled(tree):
    tree.remove("proc/pressure")
    assert psi.PsiReader(tree.root).read(1.0).missing == {"psi": "psi_disabled"}


def test_only_irq_missing_is_unsupported(tree):
    reader = psi.PsiReader(tree.root)
    reader.read("first_sample")
    assert reader.read(1.0).missing == {"psi.irq_full_ratio": "unsupported"}


def test_one_bad_file_leaves_the_others(tree):
    tree.write("proc/pressure/io", "some avg10=")
    reader = psi.PsiReader(tree.root)
    reader.read("first_sample")
    reading = reader.read(1.0)
    assert reading.missing["psi.io_some_ratio"] == reading.missing["psi.io_full_ratio"] == "malformed"
    assert reading.groups["psi"].memory_some_ratio == 0.0
