"""The shipped objects are what their sources make."""

import pathlib
import shutil
import subprocess

import pytest

from cotenant.kernel.bpf import program

ROOT = pathlib.Path(__file__).parents[3]
SOURCES = sorted(path.name.removesuffix(".bpf.c") for path in (ROOT / "bpf").glob("*.bpf.c"))


def test_every_source_is_shipped_with_its_licence_and_nothing_else():
    directory = ROOT / "src/cotenant/kernel/bpf/objects"
    shipped = sorted(path.name for path in directory.iterdir())
    assert shipped == ["LICENSE", *(f"{name}.bpf.o" for name in SOURCES)]
    assert (directory / "LICENSE").read_text() == (ROOT / "bpf" / "LICENSE").read_text()


@pytest.mark.parametrize("name", SOURCES)
def test_no_path_of_the_building_machine(name):
    image = program.shipped(name)
    assert str(ROOT).encode() not in image
    assert b"/home" not in image


@pytest.mark.parametrize("name", SOURCES)
def test_a_rebuild_gives_the_same_bytes(name, tmp_path):
    for tool in ("clang-14", "llvm-strip-14"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} (Debian: clang-14, llvm-14)")
    if not pathlib.Path("/usr/include/bpf/bpf_helpers.h").exists():
        pytest.skip("no /usr/include/bpf (Debian: libbpf-dev)")
    # Elsewhere, so that a path that crept in would show.
    copy = tmp_path / "elsewhere"
    shutil.copytree(ROOT / "bpf", copy)
    subprocess.run([copy / "build.sh", tmp_path / "out"], check=True, timeout=120)
    assert (tmp_path / "out" / f"{name}.bpf.o").read_bytes() == program.shipped(name)
