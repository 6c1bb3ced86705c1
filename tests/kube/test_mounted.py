import asyncio
import pathlib

import pytest
from tests.waiting import until

from cotenant.kube import mounted
from cotenant.units.errors import CotenantError


def number(text: str, file: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CotenantError(f"{file}: not a number") from None


def test_a_new_state_is_taken_and_a_bad_one_changes_nothing(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "file"
    path.write_text("1")
    kept = mounted.Mounted(path, number)
    assert (kept.value, kept.look()) == (1, False)
    path.write_text("two")
    assert [kept.look() for _ in range(3)] == [False, False, False]
    path.unlink()
    assert not kept.look()
    assert kept.value == 1
    assert len([record for record in caplog.records if "not a number" in record.message]) == 1
    path.write_text("3")
    assert kept.look()
    assert kept.value == 3


def test_at_the_start_it_must_be_good(tmp_path: pathlib.Path) -> None:
    with pytest.raises(mounted.UnreadableFile, match="give a file that can be read"):
        mounted.Mounted(tmp_path / "none", number)
    (tmp_path / "bad").write_text("x")
    with pytest.raises(CotenantError, match="not a number"):
        mounted.Mounted(tmp_path / "bad", number)


async def test_who_follows_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounted, "LOOK_SECONDS", 0.005)
    path = tmp_path / "file"
    path.write_text("1")
    told: list[int] = []
    following = asyncio.create_task(mounted.Mounted(path, number).follow(told.append))
    await asyncio.sleep(0.02)
    path.write_text("2")
    await until(lambda: told)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert told == [2]
