"""Requests that completed unseen are told by the disk's own count."""

import pathlib

import pytest

from cotenant.kernel import paths
from cotenant.kernel.bpf.unseen import Unseen

VDA = 254 << 32
A, B = b"A" * 8, b"B" * 8
ANSWERING = frozenset({VDA})


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    directory = tmp_path / "sys/dev/block/254:0"
    (directory / "queue").mkdir(parents=True)
    (directory / "queue/iostats").write_text("1\n")
    (directory / "inflight").write_text("       0        0\n")
    return directory


@pytest.fixture
def unseen(tmp_path: pathlib.Path, disk: pathlib.Path) -> Unseen:
    del disk
    return Unseen(paths.Root(tmp_path))


def test_what_stays_after_the_disk_said_that_it_has_none_completed_unseen(unseen):
    assert unseen.over({A: (VDA, 100)}, ANSWERING) == (set(), set())
    # At once no request of an idle disk is under way; which of them completed unseen shows at the next read.
    assert unseen.over({A: (VDA, 100), B: (VDA, 200)}, ANSWERING) == ({A, B}, set())
    assert unseen.over({A: (VDA, 100)}, ANSWERING) == ({A}, {A})
    assert unseen.over({}, frozenset()) == (set(), set())


def test_an_address_that_is_used_again_is_another_request(unseen):
    unseen.over({A: (VDA, 100)}, ANSWERING)
    unseen.over({A: (VDA, 100)}, ANSWERING)
    assert unseen.over({A: (VDA, 300)}, ANSWERING) == (set(), set())


def test_a_disk_that_answers_nothing_is_asked_at_once(unseen):
    assert unseen.over({A: (VDA, 100)}, frozenset()) == ({A}, set())


def test_a_disk_that_hangs_keeps_its_requests(unseen, disk):
    (disk / "inflight").write_text("       0        1\n")
    for _ in range(3):
        assert unseen.over({A: (VDA, 100)}, frozenset()) == (set(), set())


@pytest.mark.parametrize("change", ["iostats off", "no iostats", "no inflight", "no number", "no directory"])
def test_a_disk_that_does_not_count_keeps_its_requests(unseen, disk, change):
    if change == "iostats off":
        (disk / "queue/iostats").write_text("0\n")
    elif change == "no iostats":
        (disk / "queue/iostats").unlink()
    elif change == "no inflight":
        (disk / "inflight").unlink()
    elif change == "no number":
        (disk / "inflight").write_text("x\n")
    else:
        disk.rename(disk.with_name("8:0"))
    for _ in range(3):
        assert unseen.over({A: (VDA, 100)}, frozenset()) == (set(), set())
