"""Trees of kernel files: captured ones, copied so that a test can change them."""

import pathlib
import shutil

import msgspec
import pytest

from cotenant.kernel import paths
from cotenant.model import sample as samples

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


def unexplained(sample):
    """The nulls of a sample that neither their own name nor their group's explains."""
    decoded = msgspec.json.decode(samples.encode(sample))
    missing, found = decoded.pop("missing"), []

    def walk(value, names):
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, [*names, key])
        elif isinstance(value, list):
            for item in value:
                walk(item, names)
        elif value is None and not any(".".join(names[:n]) in missing for n in range(1, len(names) + 1)):
            found.append(".".join(names))

    walk(decoded, [])
    return found


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
