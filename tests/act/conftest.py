import pathlib
from collections.abc import Callable

import pytest
from tests.act.machine import Machine


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Callable[..., Machine]:
    """Make a node: ``machine("openeuler", cpus=8)``; the mainline v1 kernel without a name."""
    made = iter(range(1000))

    def make(flavour: str = "mainline-v1", **sizes: int) -> Machine:
        return Machine(tmp_path / str(next(made)), flavour, **sizes)

    return make
