import pathlib

import pytest
from tests.node.test_agent import SLO, idle_of, make, root
from tests.node.test_agent import Listed as Listed

from cotenant.kernel import paths
from cotenant.node import shadow
from cotenant.node.agent import Agent
from cotenant.node.policy import Policy
from cotenant.units.clock import ManualClock

__all__ = ["root"]


def shadowed(root: paths.Root) -> tuple[shadow.Shadow, ManualClock, Agent]:
    kept = Policy("n1", "enforce")
    kept.take_slo(SLO)
    agent = make(root, kept)
    clock = ManualClock()
    agent.shadow = shadow.Shadow(clock)
    return agent.shadow, clock, agent


def files_of(root: paths.Root) -> dict[pathlib.Path, str]:
    return {path: path.read_text() for path in sorted(root.directory.rglob("*")) if path.is_file()}


def test_a_shadow_writes_nothing_even_in_mode_enforce(root: paths.Root) -> None:
    beside, _, agent = shadowed(root)
    before = files_of(root)
    agent.enforce_once()
    assert files_of(root) == before
    assert (beside.rounds, beside.differing > 0) == (1, True)


def test_the_other_agent_shows_though_nothing_is_enforced(root: paths.Root) -> None:
    (root.proc / "77").mkdir()
    (root.proc / "77/comm").write_text("koordlet\n")
    _, _, agent = shadowed(root)
    agent.enforce_once()
    assert agent.status.conflict == "koordlet"


def test_a_difference_counts_once_it_has_lasted(root: paths.Root, caplog: pytest.LogCaptureFixture) -> None:
    beside, clock, agent = shadowed(root)
    caplog.set_level("INFO", "cotenant.node.shadow")
    agent.enforce_once()
    assert beside.lasting == ()
    clock.advance(shadow.LASTING_SECONDS)
    agent.enforce_once()
    assert any(one.path.endswith("podu1/cpu.idle") for one in beside.lasting)
    told = [record.getMessage() for record in caplog.records if "podu1/cpu.idle" in record.getMessage()]
    assert len(told) == 1
    assert "there 0, here 1" in told[0]
    agent.enforce_once()
    again = [record.getMessage() for record in caplog.records if "podu1/cpu.idle" in record.getMessage()]
    assert again == told, "told once"


def test_a_difference_that_goes_away_is_forgotten(root: paths.Root) -> None:
    beside, clock, agent = shadowed(root)
    agent.enforce_once()
    clock.advance(shadow.LASTING_SECONDS)
    for path in root.directory.rglob("podu1/cpu.idle"):
        path.write_text("1\n")
    agent.enforce_once()
    assert idle_of(root) == "1"
    assert not any(one.path.endswith("podu1/cpu.idle") for one in beside.lasting)
    assert beside.agreed > 0
