"""One cluster for all tests of this folder; skipped with the reason where it cannot be had."""

import os
import pathlib
import shutil
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[pathlib.Path]:
    """The administrator's kubeconfig of a running cluster, which is taken down again if these tests brought it up."""
    if os.geteuid() != 0:
        pytest.skip("the test cluster's real node needs root")
    if not (shutil.which("go") or cluster.built()):
        pytest.skip("no Go 1.26 or newer to build the control plane with, and none built before")
    for tool, package in (("runc", "runc"), ("busybox", "busybox-static"), ("openssl", "openssl")):
        if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            pytest.skip(f"{tool} is missing; as root on Debian: apt-get install {package}")
    was_up = cluster.is_up(real_node=True)
    path = cluster.up(cluster.KWOK_NODES)
    yield path
    if not was_up:
        cluster.down()
