"""The worked example of ``docs/detection.md`` is true."""

import pathlib
import re

import pytest
from tests.detect.samples import io, run

from cotenant.detect import parser
from cotenant.model import sample

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "detection.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_worked_example() -> None:
    rules = parser.parse(block("yaml"), "rules.yaml")[0].rules
    found = run(rules, [sample.decode(line) for line in block("json").splitlines()])
    assert [one.bucket for one in found] == ["unknown", "unknown", "medium", "high"]
    assert [io(one).triggered for one in found] == [None, None, False, True]
    assert [io(one).index for one in found[2:]] == [pytest.approx(0.4), pytest.approx(0.6)]
    assert found[2].detections["memoryPressure"].index == pytest.approx(0.4)
    assert found[2].interference_level == pytest.approx(0.4)
    assert found[3].interference_level == pytest.approx(0.55)
    assert found[3].coverage == pytest.approx(0.625)
    assert list(found[3].missing) == ["online.block_p99_usec", "psi.memory_full_ratio"]
