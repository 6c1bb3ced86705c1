"""Helm for the tests of the chart: from the cache, else fetched once; skipped with the reason where neither goes."""

import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from tests import process

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

import binaries

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/cotenant"

Objects = list[dict[str, Any]]


@pytest.fixture(scope="session")
def helm() -> pathlib.Path:
    """The real Helm."""
    try:
        return binaries.helm()
    except binaries.NotToBeHad as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def render(helm: pathlib.Path) -> Callable[..., Objects]:
    """A function that renders a scenario with more values over it, for a version of Kubernetes."""
    kept: dict[Any, Objects] = {}

    def rendered(scenario: str, *more: str, version: str = "1.36.0") -> Objects:
        key = (scenario, more, version)
        if key not in kept:
            command = [str(helm), "template", "cotenant", str(CHART), "--namespace=cotenant-system"]
            command += [f"--values={CHART}/values-{scenario}.yaml", f"--kube-version={version}"]
            command += [f"--set={value}" for value in more]
            done = process.run(command)
            assert done.returncode == 0, done.stderr
            kept[key] = [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]
        return kept[key]

    return rendered


def containers(objects: Objects) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield each container with its object's name and its pod's specification."""
    for one in objects:
        pod = one.get("spec", {}).get("template", {}).get("spec")
        if pod:
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                yield f"{one['kind']}/{one['metadata']['name']}/{container['name']}", container, pod
