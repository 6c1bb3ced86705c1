"""What Kata containers need of a host, as found there: ``/dev/kvm``, CPU virtualisation, vhost-vsock, a handler.

A fact that cannot be found out is absent, never false: readiness unknown passes.
"""

import os
import pathlib
import threading
import tomllib
from typing import Any

import msgspec

from cotenant.kernel import paths

OPEN_DEADLINE_SECONDS = 2.0
"""Opening ``/dev/kvm`` hangs on some nested hosts; a device that does not open in this time is not usable."""

CONTAINERD_CONFIGS = ("etc/containerd/config.toml", "var/lib/rancher/k3s/agent/etc/containerd/config.toml")
VIRTUALISATION_FLAGS = frozenset({"vmx", "svm"})


class HostFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What was found. None: could not be found out."""

    kvm: bool | None = None
    virtualisation: bool | None = None
    vhost_vsock: bool | None = None
    handlers: list[str] | None = None


def read(root: paths.Root) -> HostFacts:
    """Return the facts of a host."""
    return HostFacts(
        kvm=_opens(root.directory / "dev" / "kvm"),
        virtualisation=_virtualisation(root),
        vhost_vsock=(root.directory / "dev" / "vhost-vsock").exists(),
        handlers=_handlers(root),
    )


def _opens(device: pathlib.Path) -> bool:
    found: list[bool] = []

    def try_open() -> None:
        try:
            os.close(os.open(device, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            found.append(False)
        else:
            found.append(True)

    attempt = threading.Thread(target=try_open, daemon=True, name="open-kvm")
    attempt.start()
    attempt.join(OPEN_DEADLINE_SECONDS)
    return bool(found and found[0])


def _virtualisation(root: paths.Root) -> bool | None:
    """Return whether the CPUs can run virtual machines; on arm64 the kernel says so by ``/dev/kvm`` alone."""
    try:
        text = (root.proc / "cpuinfo").read_text(errors="replace")
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.startswith("flags")), None)
    return None if flags is None else bool(VIRTUALISATION_FLAGS & set(flags.split()))


def _handlers(root: paths.Root) -> list[str] | None:
    """Return the runtime handlers in containerd's configuration; None where there is none that can be read."""
    for name in CONTAINERD_CONFIGS:
        try:
            config = tomllib.loads((root.directory / name).read_text())
        except (OSError, ValueError):
            continue
        return sorted(_runtimes(config.get("plugins")))
    return None


def _runtimes(node: Any) -> set[str]:
    """Return the keys of every ``runtimes`` table: its place differs between versions of containerd's configuration."""
    if not isinstance(node, dict):
        return set()
    found: set[str] = set()
    for key, value in node.items():
        if key == "runtimes" and isinstance(value, dict):
            found |= set(value)
        else:
            found |= _runtimes(value)
    return found
