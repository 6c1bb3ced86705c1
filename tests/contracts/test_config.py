"""``cotenant config check``: what contracts §2 refuses, each with file, line, key and the nearest valid name."""

import json
from typing import Any

import pytest
from tests.contracts.console import cotenant

HEAD = "apiVersion: cotenant.io/v1alpha1\nkind: DetectionRuleConfig\nmetadata: {name: default}\nspec:\n"
IO = "  detections:\n    ioCongestion:\n"
OFF = "".join(f"    {name}: {{enabled: false}}\n" for name in ("cachePollution", "memoryPressure", "cpuContention"))


def _signal(name: str, normal: Any, threshold: Any, saturation: Any) -> str:
    points = f"normal: {normal}, threshold: {threshold}, saturation: {saturation}"
    return f"{IO}      signals:\n      - {{signal: {name}, {points}}}\n"


REFUSED = [  # body, line, key, nearest or a word of the message
    ("  windowSecond: 10\n", 5, "spec.windowSecond", "windowSeconds"),
    ("  detections: {ioCongestoin: {weight: 1}}\n", 5, "spec.detections.ioCongestoin", "ioCongestion"),
    (IO + "      wieght: 1\n", 7, "spec.detections.ioCongestion.wieght", "weight"),
    ("  hysteresis: {enterfor: 2}\n", 5, "spec.hysteresis.enterfor", "enterFor"),
    ("  hardLimits: {psiMemFullRatio: 0.1}\n", 5, "spec.hardLimits.psiMemFullRatio", "psiMemoryFullRatio"),
    ("  preset: defualt\n", 5, "spec.preset", "default"),
    ("  zzz: 1\n", 5, "spec.zzz", "windowSeconds"),
    (_signal("block.p99usec", 1, 2, 3), 8, "spec.detections.ioCongestion.signals[0].signal", "block.p99_usec"),
    (_signal("block.p99_usec", 5, 5, 6), 8, "spec.detections.ioCongestion.signals[0].threshold", "rising"),
    (_signal("block.p99_usec", 4, 5, 4.5), 8, "spec.detections.ioCongestion.signals[0].threshold", "rising"),
    (_signal("memory.available_ratio", 0.1, 0.2, 0.3), 8, ".signals[0].threshold", "falling"),
    (_signal("memory.available_ratio", 0.3, 0.3, 0.2), 8, ".signals[0].threshold", "falling"),
    (_signal("psi.io_some_ratio", 0.1, 0.5, 1.5), 8, ".signals[0].saturation", "at most 1"),
    (_signal("psi.io_some_ratio", ".nan", 0.5, 1), 8, ".signals[0].normal", "finite"),
    (IO + "      weight: -1\n", 7, "spec.detections.ioCongestion.weight", "at least 0"),
    (IO + "      weight: .inf\n", 7, "spec.detections.ioCongestion.weight", "finite"),
    (IO + "      weight: 0\n" + OFF, 6, "spec.detections", "weight above 0"),
    (IO + "      weight: 1e308\n    memoryPressure: {weight: 1e308}\n", 6, "spec.detections", "finite"),
    ("  windowSeconds: 2\n", 5, "spec.windowSeconds", "3 periods"),
    ("  hysteresis: {leaveRatio: 0}\n", 5, "spec.hysteresis.leaveRatio", "more than 0"),
    ("  hysteresis: {leaveRatio: 1.1}\n", 5, "spec.hysteresis.leaveRatio", "at most 1"),
    ("  hardLimits: {psiMemoryFullRatio: 1.5}\n", 5, "spec.hardLimits.psiMemoryFullRatio", "at most 1"),
]
TAKEN = [
    "  preset: mco\n",
    "  windowSeconds: 3\n",
    "  hysteresis: {leaveRatio: 1}\n",
    "  hardLimits: {psiMemoryFullRatio: null}\n",
    _signal("block.p99_usec", 4, 5, 5),
    _signal("memory.available_ratio", 0.3, 0.2, 0.2),
    _signal("block.devices.nvme0n1.p99_usec", 1, 2, 3),
]


@pytest.fixture
def written(tmp_path) -> Any:
    def write(bodies: list[str]) -> list[str]:
        paths = [tmp_path / f"{number}.yaml" for number in range(len(bodies))]
        for path, body in zip(paths, bodies, strict=True):
            path.write_text(HEAD + body)
        return [str(path) for path in paths]

    return write


def test_refused_with_file_line_key_and_the_nearest_name(written) -> None:
    paths = written([body for body, *_ in REFUSED])
    done = cotenant("config", "check", "--json", *paths)
    assert done.returncode == 1
    said = json.loads(done.stdout)["files"]
    for path, one, (body, line, key, word) in zip(paths, said, REFUSED, strict=True):
        assert not one["valid"], body
        problem = one["problems"][0]
        assert (problem["file"], problem["line"]) == (path, line), body
        assert problem["key"].endswith(key), body
        assert word in f"{problem['message']} {problem['nearest']}", body


def test_taken(written) -> None:
    done = cotenant("config", "check", "--json", *written(TAKEN))
    assert done.returncode == 0
    assert [one["problems"] for one in json.loads(done.stdout)["files"]] == [[]] * len(TAKEN)


def test_for_people_one_line_a_problem_on_stderr_and_nothing_on_stdout(written) -> None:
    (path,) = written(["  windowSecond: 10\n"])
    done = cotenant("config", "check", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"cotenant: {path}:5: spec.windowSecond: unknown key; did you mean 'windowSeconds'?\n"


def test_a_longer_period_asks_for_a_longer_window_whoever_gave_it(written) -> None:
    (path,) = written(["  preset: default\n"])
    assert cotenant("config", "check", path, "--period", "3s").returncode == 0
    done = cotenant("config", "check", path, "--period", "4s")
    assert (done.returncode, "12 or more" in done.stderr) == (1, True)


def test_what_cannot_be_read_is_bad_usage(tmp_path, written) -> None:
    assert cotenant("config", "check", tmp_path / "none.yaml").returncode == 2
    (bad,) = written(["  windowSeconds: 2\n"])
    (tmp_path / "s.jsonl").write_text("")
    done = cotenant("replay", tmp_path / "s.jsonl", "--rules", bad)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "5: spec.windowSeconds" in done.stderr
