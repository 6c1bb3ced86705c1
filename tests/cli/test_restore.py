import json
import os
import pathlib
import tempfile

import pytest
from tests.kernel.tree import Tree

from cotenant.cli import app
from cotenant.cli.restore import _print
from cotenant.kernel import executor, restoration
from cotenant.units.plan import PlanItem

POD = "sys/fs/cgroup/cpu/kubepods/pod0a1b2c3d-0000-1111-2222-333344445555"


def test_everything_back_and_exit_3_where_it_cannot_be(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"{POD}/cpu.shares", "1024")
    tree.file(f"{POD}/cpu.qos_level", "0")
    before = tree.contents()

    def write(file: str, new: str) -> PlanItem:
        return PlanItem(op="write", path=f"{POD}/{file}", new=new, strategy="test", reason="a test")

    executor.Executor(tree.root).apply([write("cpu.shares", "2")])
    assert app.run(["restore", "--root", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["restored"] == [
        {"path": f"{POD}/cpu.shares", "found": "2", "original": "1024"}
    ]
    assert tree.contents() == before

    executor.Executor(tree.root).apply([write("cpu.qos_level", "-1"), write("cpu.shares", "2")])
    assert app.run(["restore", "--root", str(tmp_path)]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "recreate the pod" in out
    assert "0a1b2c3d-0000-1111-2222-333344445555" in out
    assert out.endswith("1 put back; 1 could not be, each with its reason and remedy above.")
    assert tree.read(f"{POD}/cpu.shares") == "1024\n"


def test_groups_and_processes_are_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    group = "sys/fs/cgroup/cpu/cotenant-be/build"
    _print(
        restoration.Restoration(
            restored=[
                restoration.Restored(f"{group}/cgroup.procs", "4711", None),
                restoration.Restored(group, None, None),
                restoration.Restored(f"{group}/cpu.idle", "1", "0"),
            ]
        )
    )
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[2:]]
    said = [(path, " ".join(rest.split())) for path, rest in lines]
    assert said == [
        (group, "process 4711 where it was"),
        (group, "made by cotenant removed"),
        (f"{group}/cpu.idle", "1 0"),
    ]


def test_a_root_that_is_not_there(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["restore", "--root", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody and come back")
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_plain_user_is_told_to_run_it_as_root(mode: int, capsys: pytest.CaptureFixture[str]) -> None:
    # Not tmp_path: nobody may not even look into root's.
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        for name in ("proc", "sys", "run", "run/cotenant"):
            pathlib.Path(directory, name).mkdir(mode=0o755)
        pathlib.Path(directory, "run/cotenant/journal").touch(mode=0o644)
        os.chmod(pathlib.Path(directory, "run/cotenant"), mode)
        os.seteuid(65534)
        try:
            status = app.run(["restore", "--root", directory])
        finally:
            os.seteuid(0)
    assert status == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "as root" in said


def test_what_is_left_is_told_where_the_message_cannot_be_written(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(tmp_path, v1=("cpu",))
    tree.file(f"{POD}/cpu.qos_level", "0")
    item = PlanItem(op="write", path=f"{POD}/cpu.qos_level", new="-1", strategy="test", reason="a test")
    executor.Executor(tree.root).apply([item])
    assert app.run(["restore", "--root", str(tmp_path), "--json", "--message", "/dev/full"]) == 2
    printed = capsys.readouterr()
    assert [left["path"] for left in json.loads(printed.out)["irreversible"]] == [f"{POD}/cpu.qos_level"]
    assert printed.err.startswith("cotenant: --message /dev/full: ")
    assert printed.err.count("\n") == 1
