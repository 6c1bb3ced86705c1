"""The kubelet's checkpoint of its CPU manager, as kubelets write it."""

import pathlib

import pytest

from cotenant.kernel import cpu_manager, errors, paths

STATE = (
    '{"policyName":"static","defaultCpuSet":"0,4-7","entries":'
    '{"uid-1":{"main":"1-2","side":"3"},"uid-2":{"main":""}},"checksum":354655845}'
)


def read(tmp_path: pathlib.Path, content: str | None) -> cpu_manager.CpuManagerState | None:
    directory = tmp_path / "var/lib/kubelet"
    directory.mkdir(parents=True)
    if content is not None:
        (directory / "cpu_manager_state").write_text(content)
    return cpu_manager.read(paths.Root(tmp_path))


def test_policy_and_cpus_of_each_pod(tmp_path: pathlib.Path) -> None:
    found = read(tmp_path, STATE)
    assert found == cpu_manager.CpuManagerState(policy="static", pinned={"uid-1": frozenset({1, 2, 3})})


def test_policy_none_pins_nothing(tmp_path: pathlib.Path) -> None:
    content = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
    assert read(tmp_path, content) == cpu_manager.CpuManagerState(policy="none")


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_no_state_is_nothing_known(tmp_path: pathlib.Path, content: str | None) -> None:
    assert read(tmp_path, content) is None


@pytest.mark.parametrize("content", ["{", "[]", '{"entries":{"u":{"c":"x"}}}', '{"entries":{"u":["1"]}}'])
def test_a_torn_state_is_named(tmp_path: pathlib.Path, content: str) -> None:
    with pytest.raises(errors.MalformedFile, match="cpu_manager_state"):
        read(tmp_path, content)


def test_another_directory_is_below_the_root_too(tmp_path: pathlib.Path) -> None:
    (tmp_path / "srv/kubelet").mkdir(parents=True)
    (tmp_path / "srv/kubelet/cpu_manager_state").write_text(STATE)
    assert cpu_manager.read(paths.Root(tmp_path), "/srv/kubelet") is not None
