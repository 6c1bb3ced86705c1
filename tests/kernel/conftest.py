"""Trees of kernel files: captured ones, copied so that a test can change them."""

import pathlib
import shutil

import pytest

from cotenant.kernel import paths

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"


class Tree:
    """A copy of a captured tree, as a machine whose files a test writes."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.root = paths.Root(directory)

    def read(self, path: str) -> str:
        return (self.directory / path).read_text()

    def write(self, path: str, text: str | bytes) -> None:
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def replace(self, path: str, old: str, new: str) -> None:
        text = self.read(path)
        assert old in text
        self.write(path, text.replace(old, new))

    def remove(self, path: str) -> None:
        file = self.directory / path
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()


def copy_of(fixture: str, tmp_path: pathlib.Path) -> Tree:
    shutil.copytree(FIXTURES / fixture, tmp_path / fixture, symlinks=True)
    return Tree(tmp_path / fixture)


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    """A machine with kernel 6.18, v1 controllers, two CPUs and one virtio disk."""
    return copy_of("mainline-6.18-v1", tmp_path)


@pytest.fixture
def v2(tmp_path: pathlib.Path) -> Tree:
    """A node with cgroup v2, systemd, nginx and a pod of each kind; four CPUs, a disk below a dm device."""
    return copy_of("v2-systemd-kubepods", tmp_path)


@pytest.fixture
def v1(tmp_path: pathlib.Path) -> Tree:
    """A node with cgroup v1, the cgroupfs driver and a pod of each kind; only the online container has pressure."""
    return copy_of("v1-cgroupfs-kubepods", tmp_path)


@pytest.fixture
def empty(tmp_path: pathlib.Path) -> Tree:
    """A machine without any file."""
    (tmp_path / "empty").mkdir()
    return Tree(tmp_path / "empty")
