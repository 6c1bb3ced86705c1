import errno
import os
import resource

import pytest

from cotenant.kernel import errors
from cotenant.kernel.file import File, number, read_once


def test_each_read_is_from_the_start(tree):
    tree.write("proc/a", "one")
    file = File(tree.root.proc / "a")
    assert file.read() == b"one"
    tree.write("proc/a", "two and more")
    assert file.read() == b"two and more"
    file.close()


def test_a_long_file_comes_whole(tree):
    tree.write("proc/a", b"x" * 300_000)
    file = File(tree.root.proc / "a")
    assert len(file.read()) == len(file.read()) == 300_000
    file.close()


@pytest.mark.parametrize("size", [0, 7, 65536, 300_000])
def test_a_file_that_is_read_once_comes_whole_and_is_not_kept(tree, size):
    tree.write("proc/a", b"x" * size)
    descriptors = len(os.listdir("/proc/self/fd"))
    assert read_once(f"{tree.root.proc}/a") == b"x" * size
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("name", ["none", ".", "fifo"])
def test_what_cannot_be_read_once_is_an_error_that_leaves_nothing_open(tree, name):
    tree.root.proc.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tree.root.proc / "fifo")
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.FileError):
        read_once(f"{tree.root.proc}/{name}")
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, "gone"),
        (errno.ENODEV, "gone"),
        (errno.EACCES, "permission"),
        (errno.EPERM, "permission"),
        (errno.EOPNOTSUPP, "unsupported"),
        (errno.EIO, "io_error"),
        (errno.EINVAL, "io_error"),
    ],
)
def test_an_error_carries_path_errno_and_reason(number, reason):
    error = errors.FileError("/proc/x", number)
    assert error.reason == reason
    assert "/proc/x" in str(error)
    assert errno.errorcode[number] in str(error)


def test_a_missing_file_and_a_directory_are_errors(tree):
    with pytest.raises(errors.FileError) as missing:
        File(tree.root.proc / "nothing").read()
    assert missing.value.gone
    with pytest.raises(errors.FileError) as directory:
        File(tree.root.proc).read()
    assert directory.value.errno == errno.EISDIR


def test_a_failed_read_closes_so_that_the_next_opens_again(tree):
    directory = File(tree.root.proc / "a")
    (tree.root.proc / "a").mkdir()
    with pytest.raises(errors.FileError):
        directory.read()
    (tree.root.proc / "a").rmdir()
    tree.write("proc/a", "back")
    assert directory.read() == b"back"
    directory.close()


def test_a_fifo_does_not_hang(tree):
    os.mkfifo(tree.root.proc / "pipe")
    with pytest.raises(errors.FileError):
        File(tree.root.proc / "pipe").read()


@pytest.mark.parametrize("word", [b"", b"-1", b"1.0", b"0x1", b"9" * 21, "٣".encode()])
def test_only_counts_of_64_bits_are_numbers(word):
    with pytest.raises(errors.MalformedFile):
        number(word, "x")


def test_when_descriptors_run_short_files_are_closed_after_each_read(tree, monkeypatch):
    files = [File(tree.root.proc / "stat") for _ in range(5)]
    monkeypatch.setattr(File, "_kept_limit", staticmethod(lambda: before + 2))
    before = File.kept
    for file in files:
        assert file.read()
        assert file.read()
    assert File.kept == before + 2
    for file in files:
        file.close()
    assert File.kept == before


def test_a_plain_file_that_was_replaced_or_removed_is_noticed(tmp_path):
    path = tmp_path / "vmstat"
    path.write_text("before")
    file = File(path)
    assert file.read() == b"before"
    (tmp_path / "new").write_text("after")
    (tmp_path / "new").rename(path)
    assert file.read() == b"after"
    path.unlink()
    with pytest.raises(errors.FileError) as caught:
        file.read()
    assert caught.value.gone
    assert file.seen
    path.write_text("again")
    assert file.read() == b"again"
    file.close()


def test_a_plain_file_that_was_empty_is_followed_too(tmp_path):
    path = tmp_path / "io.stat"
    path.write_text("")
    file = File(path)
    assert file.read() == b""
    (tmp_path / "new").write_text("8:0 rbytes=1")
    (tmp_path / "new").rename(path)
    assert file.read() == b"8:0 rbytes=1"
    file.close()


@pytest.mark.parametrize(("soft", "kept"), [(20, -28), (64, 16), (1024, 768), (resource.RLIM_INFINITY, float("inf"))])
def test_a_low_limit_leaves_descriptors_for_the_page(monkeypatch, soft, kept):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert File._kept_limit() == kept
