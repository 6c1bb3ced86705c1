from collections.abc import Callable

import pytest
from tests.act.machine import Machine, steps

from cotenant.act import isolate, planning
from cotenant.act.draft import Draft, Plan, merge
from cotenant.model.evaluation import Detection, DetectionName, Evaluation, Suspect, Victim
from cotenant.model.policy import NodeSlo

Make = Callable[..., Machine]
DISK = "254:0"


def seen(name: DetectionName, suspect: str, triggered: bool | None = True, confidence: float = 0.9) -> Evaluation:
    detection = Detection(
        triggered=triggered,
        victims=[Victim(name="shop", evidence="stalls")],
        suspects=[Suspect(name=suspect, confidence=confidence, evidence="rose")],
    )
    return Evaluation(node="n", time="t", detections={name: detection})


class Run:
    """A node whose suspect is looked at again and again."""

    def __init__(self, node: Machine, group: str, use: isolate.Use, **parameters: object) -> None:
        self.node, self.group, self.use = node, group, use
        self.parameters = isolate.Parameters(**parameters)  # type: ignore[arg-type]
        self.state: isolate.Isolation | None = None
        self.now = 100.0

    def tick(self, evaluation: Evaluation, seconds: float = 10.0) -> Plan:
        snapshot = self.node.look()
        draft = Draft(snapshot, "isolate")
        uses = {self.group: self.use}
        self.state = isolate.decide(draft, self.state, evaluation, uses, self.now, self.parameters, DISK)
        plan = merge(snapshot, [draft])
        self.node.apply(plan)
        self.now += seconds
        return plan


@pytest.mark.parametrize(
    ("flavour", "name", "controller", "file", "first", "second", "before"),
    [
        ("mainline-v1", "cpuContention", "cpu", "cpu.cfs_quota_us", "280000", "196000", "-1"),
        ("mainline-v2", "cpuContention", "cpu", "cpu.max", "280000 100000", "196000 100000", "max 100000"),
        ("mainline-v2", "memoryPressure", "memory", "memory.high", "751616000", "526127104", "max"),
        (
            "mainline-v2",
            "ioCongestion",
            "blkio",
            "io.max",
            "254:0 rbps=7000000 wbps=max riops=max wiops=max",
            "254:0 rbps=4900000 wbps=max riops=max wiops=max",
            "",
        ),
        ("openeuler", "ioCongestion", "blkio", "blkio.throttle.read_bps_device", "254:0 7000000", "254:0 4900000", ""),
    ],
)
def test_the_suspect_steps_down_in_the_resource_concerned_and_everything_comes_back(
    machine: Make, flavour: str, name: DetectionName, controller: str, file: str, first: str, second: str, before: str
) -> None:
    node = machine(flavour)
    group = node.pod("be", "BestEffort", "BE")
    start = node.kernel.state()
    use = isolate.Use(cpu_millicores=4000, memory_bytes=1 << 30, read_bytes_per_sec=1e7, write_bytes_per_sec=0)
    run = Run(node, group, use)
    found = []
    for _ in range(2):
        run.tick(seen(name, group))
        found.append(node.read(controller, group, file))
    assert found == [first, second]
    changed = {path for path, text in node.kernel.state().items() if start[path] != text}
    places = (group, node.container(group)) if file.startswith("blkio.") else (group,)
    assert changed == {node.path(controller, place, file) for place in places}
    while run.state is not None:
        run.tick(seen(name, group, triggered=False))
    assert node.read(controller, group, file) == before
    assert node.kernel.state() == start


def test_after_a_step_its_effect_is_awaited(machine: Make) -> None:
    node = machine()
    group = node.pod("be", "BestEffort", "BE")
    run = Run(node, group, isolate.Use(cpu_millicores=4000))
    run.tick(seen("cpuContention", group), seconds=3)
    for _ in range(3):
        run.tick(seen("cpuContention", group), seconds=3)
        assert node.quota(group) == "280000"


def test_recovery_is_timed_from_the_first_step(machine: Make) -> None:
    node = machine()
    group = node.pod("be", "BestEffort", "BE")
    run = Run(node, group, isolate.Use(cpu_millicores=4000))
    for _ in range(3):
        run.tick(seen("cpuContention", group))
    run.tick(seen("cpuContention", group, triggered=False))
    assert run.state is not None
    assert run.state.recovery_seconds == 30


def test_what_is_unknown_changes_nothing(machine: Make) -> None:
    node = machine()
    group = node.pod("be", "BestEffort", "BE")
    run = Run(node, group, isolate.Use(cpu_millicores=4000))
    run.tick(seen("cpuContention", group))
    for _ in range(3):
        assert run.tick(seen("cpuContention", group, triggered=None)).items == ()
    assert node.quota(group) == "280000"


def test_one_resource_at_a_time(machine: Make) -> None:
    node = machine("mainline-v2")
    group = node.pod("be", "BestEffort", "BE")
    run = Run(node, group, isolate.Use(cpu_millicores=4000, memory_bytes=1 << 30))
    run.tick(seen("cpuContention", group))
    both = Evaluation(
        node="n", time="t", detections={n: d for n in ("cpuContention", "memoryPressure")
                                        for d in seen(n, group).detections.values()}
    )  # fmt: skip
    run.tick(both)
    assert node.read("memory", group, "memory.high") == "max"


@pytest.mark.parametrize(("kube", "label", "confidence"), [("Burstable", "LS", 0.9), ("BestEffort", "BE", 0.69)])
def test_online_work_and_doubtful_suspects_are_left_alone(
    machine: Make, kube: str, label: str, confidence: float
) -> None:
    node = machine()
    group = node.pod("p", kube, label)
    run = Run(node, group, isolate.Use(cpu_millicores=4000))
    assert run.tick(seen("cpuContention", group, confidence=confidence)).items == ()
    assert run.state is None


@pytest.mark.parametrize("evict", [False, True])
def test_a_suspect_that_steps_do_not_tame_is_evicted_only_when_that_is_allowed(machine: Make, evict: bool) -> None:
    node = machine()
    group = node.pod("be", "BestEffort", "BE")
    run = Run(node, group, isolate.Use(cpu_millicores=4000), evict=evict)
    evictions = [item.new for _ in range(8) for item in steps(run.tick(seen("cpuContention", group)), "evict")]
    assert evictions == (["default/be"] if evict else [])
    assert int(node.quota(group)) >= 1000


def test_a_suspect_that_is_gone_ends_the_isolation(machine: Make) -> None:
    node = machine()
    group = node.pod("be", "BestEffort", "BE")
    run = Run(node, group, isolate.Use(cpu_millicores=4000))
    run.tick(seen("cpuContention", group))
    for hierarchy in node.kernel.hierarchies:
        node.kernel.rmdir(f"{hierarchy.point}/{node.container(group)}")
        node.kernel.rmdir(f"{hierarchy.point}/{group}")
    run.tick(seen("cpuContention", group))
    assert run.state is None


@pytest.mark.parametrize(
    ("anonymous", "limit"),
    [
        (100 << 20, "751616000"),
        (700 << 20, "917504000"),
        (900 << 20, "9223372036854771712"),
        (None, "9223372036854771712"),
    ],
)
def test_a_v1_limit_reclaims_file_cache_and_never_comes_near_what_would_be_killed_for(
    machine: Make, anonymous: int | None, limit: str
) -> None:
    node = machine("mainline-v1")
    group = node.pod("be", "BestEffort", "BE")
    stat = node.path("memory", group, "memory.stat")
    node.extra[stat] = "cache 1\n" if anonymous is None else f"cache 1\ntotal_rss {anonymous}\n"
    run = Run(node, group, isolate.Use(memory_bytes=1 << 30))
    run.tick(seen("memoryPressure", group))
    assert node.read("memory", group, "memory.limit_in_bytes") == limit


def test_what_thrashes_within_its_own_limit_is_held_back_in_what_it_reads(machine: Make) -> None:
    node = machine("mainline-v1")
    group = node.pod("be", "BestEffort", "BE")
    node.write("memory", group, "memory.limit_in_bytes", str(100 << 20))
    run = Run(node, group, isolate.Use(memory_bytes=99 << 20, read_bytes_per_sec=1e7))
    run.tick(seen("memoryPressure", group))
    assert node.read("blkio", group, "blkio.throttle.read_bps_device") == "254:0 7000000"
    assert node.read("memory", group, "memory.limit_in_bytes") == str(100 << 20)


@pytest.mark.parametrize(("suppressed", "quota"), [("300000", "280000"), ("100000", "100000"), ("-1", "280000")])
def test_of_two_quotas_the_tighter_one_counts(machine: Make, suppressed: str, quota: str) -> None:
    node = machine()
    group = node.pod("be", "BestEffort", "BE")
    snapshot = node.look()
    isolating, suppressing = Draft(snapshot, "isolate"), Draft(snapshot, "cpu_suppress")
    isolate.decide(isolating, None, seen("cpuContention", group), {group: isolate.Use(cpu_millicores=4000)}, 0.0)
    suppressing.set("cpu", group, "cpu.cfs_quota_us", suppressed, "r")
    node.apply(merge(snapshot, [isolating, suppressing]))
    assert node.quota(group) == quota


@pytest.mark.parametrize("flavour", ["mainline-v1", "mainline-v2"])
@pytest.mark.parametrize("name", ["cpuContention", "ioCongestion", "memoryPressure"])
def test_no_other_strategy_takes_back_what_isolation_holds(machine: Make, flavour: str, name: DetectionName) -> None:
    """Strategies that are off release what the journal shows, and what isolation wrote is there too."""
    node = machine(flavour)
    group = node.pod("be", "BestEffort", "BE")
    node.extra[node.path("memory", group, "memory.stat")] = "total_rss 1000\n"
    use = isolate.Use(cpu_millicores=4000, memory_bytes=1 << 30, read_bytes_per_sec=1e7)
    state, journal, plans = None, {}, []
    for now in (0.0, 1.0, 2.0):
        snapshot = node.look(journal=journal)
        draft = Draft(snapshot, "isolate")
        state = isolate.decide(draft, state, seen(name, group), {group: use}, now, None, DISK)
        plan = planning.plan(snapshot, NodeSlo(), first=(draft,))
        node.apply(plan)
        journal |= {item.path: item.old for item in plan.items if item.path}
        plans.append(len(plan.items))
    throttled = 2 if (flavour, name) == ("mainline-v1", "ioCongestion") else 1  # the pod's group and its container's
    assert plans == [throttled, 0, 0]
