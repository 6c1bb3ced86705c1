import os
import pathlib

import pytest

from cotenant.kernel.directories import Directories


@pytest.fixture
def top(tmp_path: pathlib.Path) -> str:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    if tmp_path.stat().st_nlink != 4:
        pytest.skip("this file system does not count subdirectories as links; cgroupfs does")
    return os.fspath(tmp_path)


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Directories that were listed."""
    listed: list[str] = []
    real = os.scandir

    def scandir(path):
        listed.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return listed


def test_a_directory_is_listed_once_until_its_links_change(top: str, listings: list[str]) -> None:
    known = Directories(live=True)
    assert known.below(top) == known.below(top) == ("a", "b")
    known.turn()
    assert known.below(top) == ("a", "b")
    assert listings == [top]
    os.mkdir(f"{top}/c")
    assert known.below(top) == ("a", "b", "c")
    assert len(listings) == 2


def test_plain_files_are_listed_each_time(top: str, listings: list[str]) -> None:
    known = Directories(live=False)
    known.below(top)
    known.below(top)
    assert not known.is_unchanged()
    assert len(listings) == 2


def test_one_that_took_anothers_place_is_noticed_by_looking_for_each(top: str) -> None:
    known = Directories(live=True)
    known.below(top)
    os.rmdir(f"{top}/a")
    os.mkdir(f"{top}/z")
    assert known.below(top) == ("a", "b")
    assert known.standing(top) == ("b", "z")
    assert known.below(top) == ("b", "z")


def test_whether_all_is_unchanged(top: str) -> None:
    known = Directories(live=True)
    assert not known.is_unchanged()  # nothing was asked for
    known.below(top)
    known.below(f"{top}/a")
    assert known.is_unchanged()
    os.mkdir(f"{top}/a/inner")
    assert not known.is_unchanged()
    known.below(f"{top}/a")
    assert known.is_unchanged()
    os.rmdir(f"{top}/a/inner")
    os.rmdir(f"{top}/a")
    assert not known.is_unchanged()


def test_what_is_not_asked_for_is_forgotten(top: str, listings: list[str]) -> None:
    known = Directories(live=True)
    known.below(top)
    known.turn()
    known.turn()
    known.below(top)
    assert len(listings) == 2
    known.forget()
    known.below(top)
    assert len(listings) == 3


def test_a_missing_directory_is_an_error(top: str) -> None:
    with pytest.raises(FileNotFoundError):
        Directories(live=True).below(f"{top}/none")
