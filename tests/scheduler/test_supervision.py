"""Hung workers are ended and started again; run in a process of their own, since workers are forked."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from tests.waiting import PATIENCE_SECONDS, await_true

pytestmark = pytest.mark.slow

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures" / "extender"

PROGRAM = textwrap.dedent(
    """
    import asyncio, ctypes, os, platform, sys, time
    from cotenant.scheduler.supervision import Supervisor, Worker

    CLONE_VFORK, SIGCHLD = 0x4000, 17
    SYS_CLONE = {"x86_64": 56, "aarch64": 220}

    def be_held(seconds):
        # In state D, as for a disk: the kernel holds whoever calls vfork until the child has ended.
        me = os.getpid()
        if ctypes.CDLL(None).syscall(SYS_CLONE[platform.machine()], CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0:
            until = time.monotonic() + seconds
            while time.monotonic() < until and os.getppid() == me:
                time.sleep(0.01)
            os._exit(0)

    async def work(earlier):
        print(os.getpid(), earlier, flush=True)
        if "fail" in sys.argv:
            from cotenant.units.errors import CotenantError
            raise CotenantError("no such thing")
        if "block" in sys.argv and not earlier:
            await asyncio.sleep(0.2)
            time.sleep(60)
        if "compute" in sys.argv:
            await asyncio.sleep(0.2)
            until = time.process_time() + 0.3
            while time.process_time() < until:
                pass
            print("computed", flush=True)
        if "spin" in sys.argv and not earlier:
            await asyncio.sleep(0.2)
            while True:
                pass
        if "disk" in sys.argv:
            await asyncio.sleep(0.2)
            be_held(1)
            print("came back", flush=True)
        if "dead-disk" in sys.argv and not earlier:
            await asyncio.sleep(0.2)
            be_held(60)
        await asyncio.sleep(60)

    fork = os.fork

    def refused():
        os.fork = fork
        raise BlockingIOError(11, "Resource temporarily unavailable")

    if "no-fork" in sys.argv:
        os.fork = refused
    busy_seconds = 60 if "disk" in sys.argv else 0.5
    sys.exit(Supervisor([Worker("w", work, busy_seconds=busy_seconds)]).run())
    """
)


def start(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: "subprocess.Popen[str]") -> int:
    process.terminate()
    try:
        return process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    finally:
        process.communicate()


def line(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


@pytest.mark.parametrize("how", ["stop", "kill", "block", "spin", "dead-disk"])
def test_a_worker_that_hangs_or_dies_is_started_again(how: str) -> None:
    process = start(how)
    try:
        first, earlier = line(process)
        assert earlier == "0"
        time.sleep(0.3)
        if how in ("stop", "kill"):
            os.kill(int(first), signal.SIGSTOP if how == "stop" else signal.SIGKILL)
        second, earlier = line(process)  # without us it would come after a minute, from the same process, or never
        assert earlier == "1"
        assert second != first
        await_true(lambda: is_gone(int(first)), "the first process is reaped", 60)
    finally:
        assert end(process) == 0


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_worker_that_waits_for_a_slow_disk_is_left_alone() -> None:
    process = start("disk")
    try:
        pid, _ = line(process)
        assert line(process) == ["came", "back"]
        os.kill(int(pid), 0)
    finally:
        assert end(process) == 0


def test_a_worker_is_started_once_there_is_room_for_a_process() -> None:
    process = start("no-fork")
    try:
        assert line(process)[1] == "0"
    finally:
        assert end(process) == 0


def test_a_worker_that_computes_is_left_alone() -> None:
    process = start("compute")
    try:
        pid, _ = line(process)
        assert line(process) == ["computed"]
        os.kill(int(pid), 0)
    finally:
        assert end(process) == 0


def test_wrong_settings_are_said_once_and_end_the_program() -> None:
    process = start("fail")
    _, complaint = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert complaint.splitlines()[-1] == "cotenant: no such thing"


def test_workers_end_with_their_parent() -> None:
    process = start()
    pid = int(line(process)[0])
    time.sleep(0.2)
    process.kill()
    process.communicate()
    await_true(lambda: is_gone(pid), "the worker ends with its parent", 60)


def _children(pid: int) -> list[int]:
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def test_the_extender_answers_again_after_its_worker_was_stopped() -> None:
    command = [sys.executable, "-m", "cotenant", "scheduler", "--reports", str(FIXTURES / "reports.json")]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["url"].removeprefix("http://")
            body = (FIXTURES / "kube-filter-names.json").read_bytes()

            def answer() -> bytes:
                connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
                connection.request("POST", "/kube/filter", body, {"Content-Type": "application/json"})
                content = connection.getresponse().read()
                connection.close()
                return content

            before = answer()
            (worker,) = _children(server.pid)
            os.kill(worker, signal.SIGSTOP)
            assert answer() == before
            (second,) = _children(server.pid)
            assert second != worker
        finally:
            server.terminate()
            assert server.wait(PATIENCE_SECONDS) == 0
