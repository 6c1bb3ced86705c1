"""Whatever a tree of files holds, there is a sample, and every null in it is explained."""

import os
import pathlib
import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernel.conftest import FIXTURES, copy_of, unexplained

from cotenant.kernel import sampler
from cotenant.kernel.cgroup import classes
from cotenant.model import sample as samples
from cotenant.units.clock import ManualClock

pytestmark = pytest.mark.slow

TREES = ("mainline-6.18-v1", "v1-cgroupfs-kubepods", "v2-systemd-kubepods")
NUMBERS = ("completions", "in_flight", "online", "memory_bytes", "oom_kills")


def two_samples(tree, between):
    clock = ManualClock()
    matches = [classes.Match("*podaaaa*", "BE"), classes.Match("*pod1111*", "LS")]
    source = sampler.Sampler(tree.root, clock=clock, matches=matches)
    source.prime()
    between(tree)
    clock.advance(1.0)
    first = source.sample()
    clock.advance(1.0)
    second = source.sample()
    source.close()
    return first, second


def check(sample):
    assert unexplained(sample) == []
    assert samples.decode(samples.encode(sample)) == sample
    walk(msgspec.to_builtins(sample))


def walk(value, name=""):
    if isinstance(value, dict):
        for key, item in value.items():
            walk(item, key)
    elif isinstance(value, list):
        for item in value:
            walk(item, name)
    elif isinstance(value, int | float):
        assert value >= 0, name
        assert not name.endswith("_ratio") or value <= 1, name


def files_of(tree):
    return sorted(path for path in tree.directory.rglob("*") if path.is_file())


def emptied(path):
    path.write_bytes(b"")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def made_a_directory(path):
    path.unlink()
    path.mkdir()


def made_a_fifo(path):
    path.unlink()
    os.mkfifo(path)


def made_a_loop(path):
    path.unlink()
    path.symlink_to(path.name)


def made_garbage(path):
    path.write_bytes(random.Random(path.name).randbytes(400))


def reset(path):
    """Every number becomes 0."""
    path.write_bytes(bytes(48 if 49 <= byte <= 57 else byte for byte in path.read_bytes()))


def blown_up(path):
    """Every number becomes the largest that has as many digits."""
    path.write_bytes(bytes(57 if 48 <= byte <= 57 else byte for byte in path.read_bytes()))


WAYS = (emptied, cut, made_a_directory, made_a_fifo, made_a_loop, made_garbage, reset, blown_up, pathlib.Path.unlink)


@pytest.mark.parametrize("fixture", TREES)
@pytest.mark.parametrize("way", WAYS)
def test_all_files_go_bad_at_once(tmp_path, fixture, way):
    def between(tree):
        for path in files_of(tree):
            way(path)

    for sample in two_samples(copy_of(fixture, tmp_path), between):
        check(sample)


@pytest.mark.parametrize("fixture", TREES)
def test_a_machine_that_was_bad_from_the_start(tmp_path, fixture):
    for way in (emptied, made_garbage, made_a_fifo):
        tree = copy_of(fixture, tmp_path / way.__name__)
        for path in files_of(tree):
            way(path)
        for sample in two_samples(tree, lambda tree: None):
            check(sample)


@given(st.data())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_with_any_bytes(tmp_path_factory, data):
    fixture = data.draw(st.sampled_from(TREES))
    names = sorted(str(p.relative_to(FIXTURES / fixture)) for p in (FIXTURES / fixture).rglob("*") if p.is_file())
    changes = data.draw(st.dictionaries(st.sampled_from(names), st.binary(max_size=80), max_size=12))

    def between(tree):
        for name, content in changes.items():
            tree.write(name, content)

    for sample in two_samples(copy_of(fixture, tmp_path_factory.mktemp("tree")), between):
        check(sample)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_we_may_not_read(tree):
    for path in files_of(tree):
        path.chmod(0)  # before the first look: a descriptor that is open keeps its right

    sample, _ = two_samples(tree, lambda _: None)
    assert sample.missing["memory"] == "permission"
