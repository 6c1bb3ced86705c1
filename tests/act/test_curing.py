from collections.abc import Callable

from tests.act.machine import Machine

from cotenant.act import curing
from cotenant.act.draft import merge
from cotenant.model.evaluation import Detection, Evaluation, Suspect, Victim
from cotenant.model.sample import Block, Cgroup, Cpu, Device, Sample

Make = Callable[..., Machine]
TIME = "2027-01-15T08:00:00.000Z"


def sample(group: str, name: str = "make") -> Sample:
    return Sample(
        node="n",
        time=TIME,
        cpu=Cpu(online=8),
        cgroups=[Cgroup(path=group, class_="offline", name=name, cpu_used_ratio=0.5)],
        block=Block(devices={"vda": Device(p99_usec=9.0), "vdb": Device(p99_usec=90.0), "vdc": Device(p99_usec=900.0)}),
    )


def seen(triggered: bool | None, suspect: str = "make") -> Evaluation:
    detection = Detection(
        triggered=triggered,
        victims=[Victim(name="shop", evidence="stalls")],
        suspects=[Suspect(name=suspect, confidence=0.9, evidence="rose")],
    )
    return Evaluation(node="n", time=TIME, detections={"cpuContention": detection})


class Run:
    def __init__(self, node: Machine, group: str) -> None:
        self.node, self.group = node, group
        self.curing = curing.Curing()
        self.now = 0.0

    def tick(self, triggered: bool | None, seconds: float = 1.0) -> str:
        snapshot = self.node.look()
        draft = self.curing.draft(snapshot, seen(triggered), sample(self.group), {}, self.now)
        self.node.apply(merge(snapshot, [draft]))
        self.now += seconds
        return self.node.quota(self.group)


def test_a_suspect_known_by_its_name_is_held_back_and_recorded(machine: Make) -> None:
    node = machine()
    run = Run(node, node.pod("be", "BestEffort", "BE"))
    assert run.tick(True) == "280000"  # 4 of 8 CPUs, less 30 %
    assert run.curing.newest is not None
    assert (run.curing.newest.suspect, run.curing.newest.victim) == (run.group, "shop")
    assert run.curing.newest.recovery_seconds is None
    for _ in range(6):
        assert run.tick(True) == "280000"
    run.tick(False)
    assert run.curing.newest.recovered
    assert run.curing.newest.recovery_seconds == 7
    assert run.curing.newest.end is None


def test_trouble_that_comes_back_is_given_back_later_each_time(machine: Make) -> None:
    """A suspect that is at it again after each release must not be released every few seconds."""
    node = machine()
    run = Run(node, node.pod("be", "BestEffort", "BE"))
    released_after = []
    for _ in range(4):
        run.tick(True)
        calm = 0
        while run.tick(False) != "-1":
            calm += 1
        released_after.append(calm)
    assert released_after == [10, 20, 40, 80]
    assert run.curing.newest is not None
    assert run.curing.newest.end == TIME


def test_switched_off_it_gives_everything_back_at_once(machine: Make) -> None:
    node = machine()
    run = Run(node, node.pod("be", "BestEffort", "BE"))
    run.tick(True, 10)
    assert run.tick(True) == "196000"
    snapshot = node.look()
    node.apply(merge(snapshot, [run.curing.release(snapshot, TIME)]))
    assert node.quota(run.group) == "-1"
    assert run.curing.state is None
    assert run.curing.newest is not None
    assert run.curing.newest.end == TIME
    assert run.curing.release(node.look(), TIME).targets == []


def test_trouble_during_giving_back_is_answered_with_a_step(machine: Make) -> None:
    node = machine()
    run = Run(node, node.pod("be", "BestEffort", "BE"))
    run.tick(True, 10)
    assert run.tick(True, 10) == "196000"
    assert run.tick(False, 10) == "196000"  # well, but not for 10 s
    assert run.tick(False, 1) == "235200"
    assert run.tick(True, 10) == "235200"
    assert run.tick(True, 10) == "164640"
    run.tick(False, 10)
    assert run.tick(False, 10) == "164640"  # patience is 20 s now
    assert run.tick(False, 10) == "197568"


def test_of_two_groups_with_one_name_neither_is_touched(machine: Make) -> None:
    node = machine()
    group = node.pod("be", "BestEffort", "BE")
    taken = sample(group)
    twice = Sample(node="n", time=TIME, cpu=taken.cpu, cgroups=[*taken.cgroups, Cgroup(path="other", name="make")])
    assert curing.by_path(seen(True), twice).detections["cpuContention"].suspects == []


def test_a_container_stands_for_its_pod(machine: Make) -> None:
    node = machine()
    group = node.pod("be", "BestEffort", "BE")
    inner = sample(f"{group}/abc", "be/c0")
    found = curing.by_path(seen(True, "be/c0"), inner, [group])
    assert [suspect.name for suspect in found.detections["cpuContention"].suspects] == [group]


def test_the_disk_is_the_one_whose_requests_wait_longest() -> None:
    assert curing.busiest_disk(sample("g"), {"vda": "254:0", "vdb": "254:16"}) == "254:16"
    assert curing.busiest_disk(sample("g"), {}) is None


def test_what_is_unknown_stays_unknown() -> None:
    unknown = Sample(node="n", time=TIME, cgroups=[Cgroup(path="g", cpu_used_ratio=0.5)])
    assert curing.uses(unknown)["g"].cpu_millicores is None
