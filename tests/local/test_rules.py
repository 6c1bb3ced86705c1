import os
import pathlib

import pytest

from cotenant.detect.engine import Engine
from cotenant.detect.errors import BadRules
from cotenant.local.revisions import Revisions
from cotenant.local.rules import FileJudge, PresetJudge
from cotenant.model.sample import Cpu, Sample
from cotenant.units.clock import ManualClock
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


class File:
    """A rules file as a person changes it, and the judge that follows it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.path = directory / "rules.yaml"
        self.data = directory / "data"
        self.data.mkdir()
        self._second = 0

    def write(self, threshold: str) -> None:
        """Replace the file as an editor does, so that it is another file even within one clock tick."""
        new = self.path.with_name("new")
        new.write_text(RULES.replace("THRESHOLD", threshold))
        os.replace(new, self.path)

    def judge(self) -> FileJudge:
        return FileJudge(self.path, 1.0, Engine, Revisions(self.data), ManualClock())

    def threshold(self, judge: FileJudge) -> float | None:
        self._second += 1
        time = f"2027-01-15T08:00:{self._second:02d}Z"
        sample = Sample(node="n1", time=time, uptime_s=float(self._second), period_s=1.0, cpu=Cpu(used_ratio=0.3))
        return judge.evaluate(sample).detections["cpuContention"].signals["cpu.used_ratio"].threshold


@pytest.fixture
def file(tmp_path: pathlib.Path) -> File:
    return File(tmp_path)


def test_a_changed_file_is_taken_up_and_a_bad_one_is_not(file: File) -> None:
    file.write("0.5")
    judge = file.judge()
    assert file.threshold(judge) == 0.5
    judge.refresh()
    assert (judge.rules_state().error, judge.rules_state().revision) == (None, 1)
    file.write("0.6")
    judge.refresh()
    assert file.threshold(judge) == 0.6
    assert judge.rules_state().revision == 2
    file.write("0.05")
    judge.refresh()
    error = judge.rules_state().error
    assert error is not None
    assert "rules.yaml:9" in error, "file and line"
    assert judge.rules_state().revision == 2
    assert file.threshold(judge) == 0.6, "the rules before stay in force"
    file.path.unlink()
    judge.refresh()
    assert "No such file" in (judge.rules_state().error or "")
    file.write("0.7")
    judge.refresh()
    assert judge.rules_state().error is None
    assert file.threshold(judge) == 0.7


def test_rolling_back_takes_effect_at_once_and_changes_the_file(file: File) -> None:
    for threshold in ("0.5", "0.6"):
        file.write(threshold)
        judge = file.judge()
    assert judge.roll_back(None).revision == 3
    assert file.threshold(judge) == 0.5
    assert "threshold: 0.5" in file.path.read_text()
    with pytest.raises(Refused, match="no revision 9"):
        judge.roll_back(9)
    assert [r.cause for r in Revisions(file.data).history()] == ["start", "start", "rollback"]


def test_a_bad_file_at_the_start_is_an_error(file: File) -> None:
    with pytest.raises(BadRules, match="No such file"):
        file.judge()
    file.path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadRules, match="UTF-8"):
        file.judge()
    file.path.write_text(RULES.replace("windowSeconds", "windowSecond").replace("THRESHOLD", "0.5"))
    with pytest.raises(BadRules, match="windowSeconds"):
        file.judge()


def test_without_room_for_revisions_the_rules_still_count(file: File) -> None:
    file.data.rmdir()
    file.data.write_text("a file where the directory should be")
    file.write("0.5")
    judge = file.judge()
    assert judge.rules_state().revision is None
    assert file.threshold(judge) == 0.5


def test_a_preset_has_no_revisions() -> None:
    judge = PresetJudge(Engine)
    judge.refresh()
    assert judge.rules_state().source == "preset default"
    with pytest.raises(Refused, match="--rules"):
        judge.roll_back(None)


def test_a_pipe_in_place_of_the_file_keeps_nobody_waiting(file: File) -> None:
    file.write("0.5")
    judge = file.judge()
    os.unlink(file.path)
    os.mkfifo(file.path)
    judge.refresh()
    assert "not a plain file" in (judge.rules_state().error or "")
    assert file.threshold(judge) == 0.5
