"""``cotenant run`` on this machine's own cgroups and on the double of every family."""

import contextlib
import json
import os
import pathlib
import pty
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.double import fuse, model
from tests.process import COTENANT
from tests.waiting import PATIENCE_SECONDS, await_true

from cotenant.kernel import paths
from cotenant.local import errors, groups
from cotenant.local import run as running

ALONE = f"t{os.getpid()}"

pytestmark = pytest.mark.real


@pytest.fixture
def managed(tmp_path: pathlib.Path) -> Iterator[groups.Groups]:
    """This machine's managed groups; what a failed test leaves is killed and removed."""
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    root = paths.Root()
    cpu = root.hierarchy("cpu")
    if cpu is None or not os.access(cpu.path, os.W_OK):
        pytest.skip("no writable cpu hierarchy")
    found = groups.Groups(root)
    yield found
    for record in found.records():
        if record.name.startswith(ALONE):
            for pid in found.members(record.path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await_true(lambda path=record.path: not found.members(path), "the group empties")
            found.remove(record.path)
            found.forget(record.name)


def start(*words: str, name: str = ALONE, **options: object) -> subprocess.Popen[str]:
    """Start ``cotenant run`` with a class and a name; the words begin after ``--name``."""
    command = [*COTENANT, "run", "--name", name, *words]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


def exists(found: groups.Groups, path: str) -> bool:
    return any((mount.path / path).is_dir() for mount in found.mounts)


def test_the_command_runs_in_its_group_with_its_priority_and_limits_from_the_start(managed: groups.Groups) -> None:
    script = "import os; print(open('/proc/self/cgroup').read()); raise SystemExit(7)"
    run = start("--qos", "BE", "--cpus", "1500m", "--memory", "64Mi", "--", sys.executable, "-c", script)
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, err) == (7, "")
    lines = [line for line in out.splitlines() if f"/cotenant-be/{ALONE}" in line]
    assert len(lines) == len(managed.mounts)
    assert not exists(managed, f"cotenant-be/{ALONE}")
    assert not (managed.directory / f"{ALONE}.json").exists()


def test_values_are_in_the_files_while_the_command_runs(managed: groups.Groups) -> None:
    run = start("--qos", "BE", "--cpus", "1.5", "--memory", "64Mi", "--", "sleep", "900")
    try:
        path = f"cotenant-be/{ALONE}"
        await_true(lambda: managed.members(path), "the command is in its group")
        cpu, memory = (managed.root.hierarchy(name) for name in ("cpu", "memory"))
        assert cpu is not None
        quota = "cpu.cfs_quota_us" if cpu.version == 1 else "cpu.max"
        assert (cpu.path / path / quota).read_text().split()[0] == "150000"
        if memory is not None:
            file = "memory.limit_in_bytes" if memory.version == 1 else "memory.max"
            assert (memory.path / path / file).read_text() == f"{64 << 20}\n"
        for setting in managed.interface.settings[-1]:
            for group in (path, "cotenant-be"):
                assert (cpu.path / group / setting.file).read_text().strip() == setting.value
        record = json.loads((managed.directory / f"{ALONE}.json").read_text())
        assert (record["qos"], record["path"], record["owner"]) == ("BE", path, run.pid)
        second = start("--qos", "BE", "--", "true")
        _, err = second.communicate(timeout=PATIENCE_SECONDS)
        assert second.returncode == 2
        assert "in use" in err
    finally:
        run.terminate()
        run.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_signals_reach_the_command_and_end_both_alike(managed: groups.Groups, number: signal.Signals) -> None:
    run = start("--qos", "LS", "--", "sleep", "900")
    await_true(lambda: managed.members(f"cotenant-ls/{ALONE}"), "the command is in its group")
    await_true(lambda: "sleep" in _commands(managed, f"cotenant-ls/{ALONE}"), "the command has begun")
    run.send_signal(number)
    run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == -number
    assert not exists(managed, f"cotenant-ls/{ALONE}")


def _commands(found: groups.Groups, path: str) -> list[str]:
    names = []
    for pid in found.members(path):
        with contextlib.suppress(OSError):
            names.append(pathlib.Path(f"/proc/{pid}/comm").read_text().strip())
    return names


def _state(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("command", "status"), [("/nonexistent/command", 127), ("/etc/passwd", 126)], ids=["missing", "not executable"]
)
def test_a_command_that_cannot_run_has_the_shells_status(managed: groups.Groups, command: str, status: int) -> None:
    run = start("--qos", "BE", "--", command)
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == status
    assert command in err
    assert not exists(managed, f"cotenant-be/{ALONE}")


def test_standard_input_and_options_after_the_dashes_are_the_commands(managed: groups.Groups) -> None:
    run = start("--qos", "BE", "--", "grep", "--count", "a", stdin=subprocess.PIPE)
    out, _ = run.communicate("a\nb\na\n", timeout=PATIENCE_SECONDS)
    assert (run.returncode, out) == (0, "2\n")


def test_a_word_that_is_no_text_is_the_commands_as_it_is(managed: groups.Groups) -> None:
    words = [*COTENANT, "run", "--name", ALONE, "--qos", "BE", "--", "sh", "-c", 'printf %s "$0"', b"\xff\xfe"]
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"\xff\xfe", b"")
    assert not any(record.name == ALONE for record in managed.records())


def test_a_record_that_cannot_be_written_keeps_no_name(
    managed: groups.Groups, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "directory", tmp_path / "groups")
    record = groups.Record(
        path=f"cotenant-be/{ALONE}",
        qos="BE",
        name=ALONE,
        pid=1,
        owner=1,
        owner_started="1",
        command=("true",),
        started="",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))  # as on a full disk, half of it is written
    try:
        with pytest.raises(errors.GroupError, match="no record, so no group"):
            managed.reserve(record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(managed.directory.iterdir()) == []
    managed.reserve(record)
    assert managed.records() == [record]
    with pytest.raises(errors.GroupError, match="in use"):
        managed.reserve(record)
    assert [path.name for path in managed.directory.iterdir()] == [f"{ALONE}.json"]


def test_what_the_command_leaves_is_named_and_cleaned_by_the_next_run(managed: groups.Groups) -> None:
    script = "sleep 900 >/dev/null 2>&1 & echo $!"
    run = start("--qos", "BE", "--", "sh", "-c", script)
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    pid, path = int(out), f"cotenant-be/{ALONE}"
    assert run.returncode == 0
    assert str(pid) in err
    assert managed.members(path) == [pid]
    os.kill(pid, signal.SIGKILL)
    await_true(lambda: not managed.members(path), "the daemon has ended")
    again = start("--qos", "BE", "--", "true")
    again.communicate(timeout=PATIENCE_SECONDS)
    assert again.returncode == 0
    assert not exists(managed, path)


def test_kill_9_of_the_starter_leaves_a_group_that_is_cleaned_when_empty(managed: groups.Groups) -> None:
    path = f"cotenant-be/{ALONE}"
    run = start("--qos", "BE", "--", "sleep", "900")
    await_true(lambda: "sleep" in _commands(managed, path), "the command has begun")
    run.kill()
    run.wait(PATIENCE_SECONDS)
    for stream in (run.stdout, run.stderr):
        stream.close()  # type: ignore[union-attr]  # the command still has the other ends
    assert [record.name for record in managed.clean()] == []
    (pid,) = managed.members(path)
    os.kill(pid, signal.SIGKILL)
    await_true(lambda: not managed.members(path), "the command has ended")
    assert [record.name for record in managed.clean()] == [ALONE]
    assert not exists(managed, path)


def test_a_group_that_cannot_be_made_starts_nothing(managed: groups.Groups, tmp_path: pathlib.Path) -> None:
    mark = tmp_path / "started"
    run = start("--qos", "BE", "--cpus", "9999999999", "--", "touch", str(mark))
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 2
    assert "cpu" in err
    assert not mark.exists()
    assert not exists(managed, f"cotenant-be/{ALONE}")
    assert not (managed.directory / f"{ALONE}.json").exists()


def test_the_terminal_stops_and_continues_the_whole_job(managed: groups.Groups) -> None:
    """An interactive shell runs it as a job: ctrl-Z stops it, ``fg`` goes on, ctrl-C ends it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PS1"] = "ready> "
        os.execvp("bash", ["bash", "--norc", "-i"])
    seen = b""

    def until(text: bytes) -> None:
        nonlocal seen

        def has_come() -> bool:
            nonlocal seen
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 4096)
            return text in seen

        await_true(has_come, f"{text!r} in the terminal", said=lambda: repr(seen), pause_seconds=0)
        seen = seen.partition(text)[2]

    try:
        until(b"ready> ")
        os.write(terminal, f"{' '.join(COTENANT)} run --qos BE --name {ALONE} -- sleep 901\n".encode())
        await_true(lambda: "sleep" in _commands(managed, f"cotenant-be/{ALONE}"), "the command has begun")
        members = managed.members(f"cotenant-be/{ALONE}")
        os.write(terminal, b"\x1a")
        until(b"Stopped")
        until(b"ready> ")
        await_true(lambda: [_state(one) for one in members] == ["T"], "the command stands still")
        os.write(terminal, b"fg\n")
        await_true(lambda: [_state(one) for one in members] == ["S"], "the command goes on")
        os.write(terminal, b"\x03")
        until(b"ready> ")
        os.write(terminal, b"echo status=$?\n")
        until(b"status=130")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert not exists(managed, f"cotenant-be/{ALONE}")


OFFLINE = {
    "mainline-v1": ("cpu", "cpu.idle", "1"),
    "mainline-v2": ("", "cpu.idle", "1"),
    "openeuler": ("cpu,cpuacct", "cpu.qos_level", "-1"),
    "openeuler-multi": ("cpu,cpuacct", "cpu.qos_level", "-1"),
    "openeuler-v2": ("", "cpu.idle", "1"),
    "anolis-bvt": ("cpu,cpuacct", "cpu.bvt_warp_ns", "-1"),
    "anolis-bvt-v2": ("", "cpu.bvt_warp_ns", "-1"),
    "anolis-priority": ("", "cpu.priority", "-1"),
    "anolis-priority-v1": ("cpu,cpuacct", "cpu.priority", "-1"),
    "tencent": ("cpu,cpuacct", "cpu.offline", "1"),
}


@pytest.mark.parametrize("name", model.FLAVOURS)
def test_every_family_holds_the_command_back_before_it_begins(name: str, tmp_path: pathlib.Path) -> None:
    if reason := fuse.unavailable():
        pytest.skip(reason)
    kernel = model.kernel(name)
    hierarchy, file, value = OFFLINE[name]
    with fuse.mounted(kernel, tmp_path) as root:
        group = root / model.CGROUP / hierarchy / "cotenant-be" / "job"
        request = running.Request(["cat", str(group / file), str(group / "cgroup.procs")], "BE", "job")
        # The command's own output shows what was in force when it began.
        out = _output(root, request)
        first, *members = out.split()
        assert first == value
        assert members
        assert not group.exists()
        assert not group.parent.exists()
        assert [attempt.path for attempt in kernel.refused() if attempt.operation == "write"] == []


def _output(root: pathlib.Path, request: running.Request) -> str:
    words = ["--qos", request.qos, "--root", str(root), "--", *request.command]
    run = start(*words, name=request.name or "")
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, err) == (0, "")
    return out
