"""Real noise beside online work on this machine: the right kind, the right suspect; and what hurts nobody is not named.

Nothing here is timed: each test waits for the state that has to come, so that a machine with other work on it passes
too. ``bench/noise`` measures how fast it comes.
"""

import dataclasses
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

import pytest
from bench.noise import loads
from tests.waiting import PATIENCE_SECONDS

from cotenant.detect import presets
from cotenant.detect.engine import Engine
from cotenant.kernel import paths
from cotenant.kernel.cgroup.classes import Match
from cotenant.kernel.sampler import Sampler, open_sampler
from cotenant.model import sample as samples
from cotenant.model.evaluation import DetectionName, Evaluation

CALM_SECONDS = 4
WHOLE_WINDOW_SECONDS = 12


@dataclasses.dataclass
class Scene:
    """The online work runs; samples are taken while a test waits."""

    stage: loads.Stage
    sampler: Sampler

    def watch(
        self,
        wanted: Callable[[samples.Sample, Evaluation], bool],
        seconds: float,
        least: float = 0,
        broken: Callable[[Evaluation], bool] = lambda _: False,
    ) -> tuple[bool, list[Evaluation]]:
        """Evaluate each second until it is as wanted, but for some time at least, or until it is broken.

        Return whether it came to be as wanted, and all evaluations.
        """
        engine, seen, started = Engine(presets.get("default")), [], time.monotonic()
        self.sampler.prime()
        while time.monotonic() - started < seconds:
            time.sleep(1)
            taken = self.sampler.sample()
            seen.append(engine.evaluate(taken))
            if broken(seen[-1]):
                return False, seen
            if time.monotonic() - started >= least and wanted(taken, seen[-1]):
                return True, seen
        return False, seen

    def is_hurt(self) -> bool:
        """Return whether anything is detected without a noise."""
        return self.watch(triggered, WHOLE_WINDOW_SECONDS)[0]


def triggered(_: samples.Sample, found: Evaluation) -> bool:
    return any(state.triggered for state in found.detections.values())


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    if lacking := loads.missing("fio", "ip", "iperf3"):
        pytest.skip(lacking)
    # On a disk: the usual temporary directory may be in memory.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True, text=True, check=True)
        if kind.stdout.strip() in ("tmpfs", "ramfs"):
            pytest.skip("/var/tmp is in memory, not on a disk")
        with loads.Network() as network, loads.stage(pathlib.Path(directory), network) as stage:
            matches = [Match.parse(f"{stage.online.path}=LS"), Match.parse(f"{stage.offline.path}=BE")]
            sampler = open_sampler(paths.Root(), matches=matches)
            try:
                stage.limit_seconds = 5 * PATIENCE_SECONDS
                stage.start_online(50 * PATIENCE_SECONDS)
                yield Scene(stage, sampler)
            finally:
                sampler.close()


def described(seen: list[Evaluation]) -> str:
    """Return how it went, a line for each second, for a test that failed."""
    return "\n".join(
        f"{found.interference_level} "
        + " ".join(
            f"{name}={state.triggered} {state.index} {[suspect.name for suspect in state.suspects]}"
            for name, state in found.detections.items()
        )
        for found in seen
    )


def is_dominant(found: Evaluation, kind: str) -> bool:
    indexes = {name: state.index or 0.0 for name, state in found.detections.items() if state.triggered}
    return kind in indexes and indexes[kind] >= max(indexes.values())


@pytest.mark.real
@pytest.mark.parametrize("name", ["io", "memory", "cpu", "softirq"])
def test_noise_is_named_as_what_it_is_with_who_makes_it(scene: Scene, name: str) -> None:
    noise = next(noise for noise in loads.NOISES if noise.name == name)
    assert noise.kind is not None
    kind = noise.kind
    scene.watch(lambda taken, found: not triggered(taken, found), CALM_SECONDS * 2, CALM_SECONDS)
    noise.start(scene.stage, 1)
    try:
        found, seen = scene.watch(
            lambda _, found: (
                is_dominant(found, kind)
                and [suspect.name for suspect in found.detections[kind].suspects][:1] == [scene.stage.offline.path]
                and [victim.name for victim in found.detections[kind].victims] == [scene.stage.online.path]
            ),
            PATIENCE_SECONDS,
        )
        assert scene.stage.is_working()
    finally:
        scene.stage.stop_noise()
    if not found and scene.is_hurt():
        pytest.skip("other work on this machine hurts the online work without this noise too: nothing can be told")
    assert found, described(seen)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "kind", "works"),
    [
        ("idle", "cpuContention", lambda taken: (taken.offline.cpu_used_ratio or 0.0) > 0.1),
        ("sequential", "ioCongestion", lambda taken: any((g.read_bytes_per_sec or 0.0) > 20e6 for g in taken.cgroups)),
    ],
)
def test_offline_work_that_hurts_nobody_is_not_called_interference(
    scene: Scene, name: str, kind: DetectionName, works: Callable[[samples.Sample], bool]
) -> None:
    noise = next(noise for noise in loads.NOISES if noise.name == name)
    noise.start(scene.stage, 1)

    has_worked = False

    def harmless(taken: samples.Sample, found: Evaluation) -> bool:
        nonlocal has_worked
        has_worked |= works(taken)
        return works(taken) and found.interference_level is not None and found.interference_level < 0.1

    # Whatever else this machine does may hurt the online work meanwhile, so it begins anew when something is detected;
    # what this work does itself would be detected within a few seconds each time.
    try:
        started, found, seen = time.monotonic(), False, []
        while not found and time.monotonic() - started < PATIENCE_SECONDS:
            found, seen = scene.watch(
                harmless, 30, WHOLE_WINDOW_SECONDS, lambda found: bool(found.detections[kind].triggered)
            )
        assert scene.stage.is_working()
    finally:
        scene.stage.stop_noise()
    if not found and not has_worked:
        pytest.skip("other work on this machine leaves this work nothing to run on")
    if not found and scene.is_hurt():
        pytest.skip("other work on this machine hurts the online work without this noise too: nothing can be told")
    assert found, described(seen)
