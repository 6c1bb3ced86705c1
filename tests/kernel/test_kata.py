import pathlib

import pytest

from cotenant.kernel import kata, paths

CONFIG = """version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata-qemu]
runtime_type = "io.containerd.kata-qemu.v2"
"""


@pytest.fixture
def root(tmp_path: pathlib.Path) -> paths.Root:
    for folder in ("proc", "dev", "etc/containerd"):
        (tmp_path / folder).mkdir(parents=True)
    return paths.Root(tmp_path)


def test_a_host_that_has_it_all(root: paths.Root) -> None:
    (root.proc / "cpuinfo").write_text("processor : 0\nflags : fpu vmx\n")
    (root.directory / "dev/kvm").touch()
    (root.directory / "dev/vhost-vsock").touch()
    (root.directory / "etc/containerd/config.toml").write_text(CONFIG)
    assert kata.read(root) == kata.HostFacts(
        kvm=True, virtualisation=True, vhost_vsock=True, handlers=["kata-qemu", "runc"]
    )


def test_what_is_missing_is_false_and_what_cannot_be_told_is_absent(root: paths.Root) -> None:
    facts = kata.read(root)
    assert facts == kata.HostFacts(kvm=False, virtualisation=None, vhost_vsock=False, handlers=None)


def test_a_broken_configuration_says_nothing(root: paths.Root) -> None:
    (root.directory / "etc/containerd/config.toml").write_text("= nonsense")
    (root.proc / "cpuinfo").write_text("flags : fpu\n")
    assert kata.read(root).handlers is None
    assert kata.read(root).virtualisation is False
