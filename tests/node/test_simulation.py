from cotenant.detect import engine, presets
from cotenant.node.simulation import SimulatedNode


def test_a_noisy_node_triggers_and_a_calm_one_never_does() -> None:
    judge = engine.Engine(presets.get())
    noisy, calm = SimulatedNode("a", True, 1), SimulatedNode("b", False, 1)
    for second in range(30):
        loud = judge.evaluate(noisy.sample(100.0 + second, 1_800_000_000.0 + second))
        quiet = judge.evaluate(calm.sample(100.0 + second, 1_800_000_000.0 + second))
        assert not any(found.triggered for found in quiet.detections.values())
    assert [name for name, found in loud.detections.items() if found.triggered] == ["ioCongestion"]
    assert quiet.bucket == "none"


def test_the_same_seed_gives_the_same_samples() -> None:
    assert SimulatedNode("a", True, 1).sample(1.0, 0.0) == SimulatedNode("a", True, 1).sample(1.0, 0.0)
    assert SimulatedNode("a", True, 2).sample(1.0, 0.0) != SimulatedNode("a", True, 1).sample(1.0, 0.0)


def test_a_simulated_agent_says_what_its_labels_ask() -> None:
    node = SimulatedNode("a", False, 1)
    node.interface = "openeuler-qos-level"
    said = node.facts({"cotenant.io/mode": "enforce", "cotenant.io/slo-revision": "7"})
    assert (said.mode, said.slo_revision, said.priority_interface) == ("enforce", "7", "openeuler-qos-level")
    assert said.check is not None
    assert said.check.irreversible
    assert node.facts({}).mode == "observe"
