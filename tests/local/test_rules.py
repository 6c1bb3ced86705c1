import os
import pathlib

import pytest

from cotenant.detect.engine import Engine
from cotenant.detect.errors import BadRules
from cotenant.local.rules import FileJudge, PresetJudge, UnreadableRules
from cotenant.model.sample import Cpu, Sample
from cotenant.web.feed import Refused

RULES = """\
apiVersion: cotenant.io/v1alpha1
kind: DetectionRuleConfig
metadata: {name: default}
spec:
  windowSeconds: 5
  detections:
    cpuContention:
      signals:
      - {signal: cpu.used_ratio, normal: 0.1, threshold: THRESHOLD, saturation: 1.0}
"""


def write(path: pathlib.Path, text: str) -> None:
    """Replace the file as an editor does, so that it is another file even within one clock tick."""
    new = path.with_name("new")
    new.write_text(text)
    os.replace(new, path)


def threshold(judge: FileJudge, second: int) -> float | None:
    sample = Sample(
        node="n1", time=f"2027-01-15T08:00:{second:02d}Z", uptime_s=float(second), period_s=1.0, cpu=Cpu(used_ratio=0.3)
    )
    return judge.evaluate(sample).detections["cpuContention"].signals["cpu.used_ratio"].threshold


def test_a_changed_file_is_taken_up_and_a_bad_one_is_not(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rules.yaml"
    write(path, RULES.replace("THRESHOLD", "0.5"))
    judge = FileJudge(path, 1.0, Engine)
    assert threshold(judge, 1) == 0.5
    judge.refresh()
    assert judge.rules_state().error is None
    write(path, RULES.replace("THRESHOLD", "0.6"))
    judge.refresh()
    assert threshold(judge, 2) == 0.6
    write(path, RULES.replace("THRESHOLD", "0.05"))
    judge.refresh()
    error = judge.rules_state().error
    assert error is not None
    assert "rules.yaml:9" in error, "file and line"
    assert threshold(judge, 3) == 0.6, "the rules before stay in force"
    path.unlink()
    judge.refresh()
    assert "No such file" in (judge.rules_state().error or "")
    write(path, RULES.replace("THRESHOLD", "0.7"))
    judge.refresh()
    assert judge.rules_state().error is None
    assert threshold(judge, 4) == 0.7


def test_a_bad_file_at_the_start_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rules.yaml"
    with pytest.raises(UnreadableRules, match="No such file"):
        FileJudge(path, 1.0, Engine)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UnreadableRules, match="UTF-8"):
        FileJudge(path, 1.0, Engine)
    path.write_text(RULES.replace("windowSeconds", "windowSecond").replace("THRESHOLD", "0.5"))
    with pytest.raises(BadRules, match="windowSeconds"):
        FileJudge(path, 1.0, Engine)
    elsewhere = RULES.replace("  windowSeconds: 5", "  nodeSelector: {a: b}").replace("name: default", "name: a")
    path.write_text(elsewhere.replace("THRESHOLD", "0.5"))
    with pytest.raises(UnreadableRules, match="nodeSelector"):
        FileJudge(path, 1.0, Engine)


def test_a_preset_has_no_revisions() -> None:
    judge = PresetJudge(Engine)
    judge.refresh()
    assert judge.rules_state().source == "preset default"
    with pytest.raises(Refused, match="--rules"):
        judge.roll_back(None)
