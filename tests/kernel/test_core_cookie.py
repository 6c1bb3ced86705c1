"""Core scheduling as this machine's kernel answers: most are built without it, and then everything says so."""

import errno
import os
import subprocess
from collections.abc import Iterator

import pytest

from cotenant.kernel import core_cookie, executor, paths
from cotenant.units.plan import PlanItem

pytestmark = pytest.mark.real


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(["sleep", "900"]) for _ in range(2)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_kernel_without_it_says_so_and_a_plan_is_refused(
    processes: list[subprocess.Popen[bytes]], tmp_path: os.PathLike[str]
) -> None:
    if core_cookie.is_available():
        pytest.skip("this kernel has core scheduling")
    with pytest.raises(OSError, match="Invalid") as caught:
        core_cookie.read(0)
    assert caught.value.errno == errno.EINVAL
    root = paths.Root("/")
    root.run_dir = tmp_path / "run"  # type: ignore[operator]
    item = PlanItem(op="core_cookie", path=f"proc/{processes[0].pid}", new="offline", strategy="test", reason="a test")
    assert executor.Executor(root).apply([item])[0].state == "refused"
    assert not root.run_dir.exists()


def test_a_cookie_is_made_shared_and_taken_away(processes: list[subprocess.Popen[bytes]]) -> None:
    first, second = (process.pid for process in processes)
    try:
        core_cookie.create(first)
    except OSError as error:
        pytest.skip(f"no core scheduling here: {error.strerror}")
    core_cookie.share(first, second)
    assert core_cookie.read(first) == core_cookie.read(second) != 0
    core_cookie.clear(second)
    assert core_cookie.read(second) == 0
