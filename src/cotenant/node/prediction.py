"""How much of what online pods asked for they will not use: from histograms that fade, kept over restarts.

Each minute the mean CPU and the largest memory of that minute go into the histograms of each pod, of all prod pods
together and of the system. CPU fades by half in 12 h, memory in 24 h. The peak of something is its p95 of CPU and p98
of memory, and a tenth on top.
"""

import logging
import math
import os
import pathlib
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from cotenant.model.node import Usage, Use
from cotenant.model.pod import Pod
from cotenant.units.histogram import Histogram
from cotenant.units.malformed import MALFORMED

_log = logging.getLogger(__name__)

TRAINING_SECONDS = 60.0
COLD_SECONDS = 24 * 3600.0
"""A pod is reclaimed from only after it has been watched for a day: many have a busy hour."""
PEAK_AFTER_SECONDS = 30 * 60.0
"""The peak of all prod pods is told after half an hour: until then it is that of a start."""
FORGOTTEN_SECONDS = 30 * 60.0
"""A pod that has not been seen for so long is not coming back."""
CPU_HALF_LIFE_SECONDS, MEMORY_HALF_LIFE_SECONDS = 12 * 3600.0, 24 * 3600.0
CPU_PEAK, MEMORY_PEAK = 0.95, 0.98
SAFETY = 1.1
KIB = 1024
MAX_PODS = 500
MAX_BYTES = 8 << 20
FILE = "prediction.json"
CHECKPOINT_VERSION = 1


class Model:
    """The fading histograms of one thing: CPU in millicores, memory in KiB."""

    __slots__ = ("cpu", "memory", "seen_at", "since", "trained_at")

    def __init__(self, since: float) -> None:
        self.cpu = Histogram()
        self.memory = Histogram()
        self.since = since
        """When it was first seen; seconds since the epoch, as all here: a reboot does not make a pod new."""
        self.seen_at = since
        self.trained_at = since

    def train(self, use: Use, now: float) -> None:
        """Take one minute in; what is not known of it is left out."""
        self.fade(now)
        self.seen_at = now
        if use.cpu_millicores is not None:
            self.cpu.add(use.cpu_millicores)
        if use.memory_bytes is not None:
            self.memory.add(use.memory_bytes / KIB)

    def fade(self, now: float) -> None:
        """Let what is there lose weight for the time since it last did; a clock that was set back changes nothing."""
        seconds = max(now - self.trained_at, 0.0)
        self.trained_at = now
        self.cpu.decay(2 ** (-seconds / CPU_HALF_LIFE_SECONDS))
        self.memory.decay(2 ** (-seconds / MEMORY_HALF_LIFE_SECONDS))

    def peak(self) -> Use:
        """Return the peak without the safety margin; None for what was never known."""
        memory_kib = self.memory.quantile(MEMORY_PEAK)
        return Use(
            cpu_millicores=self.cpu.quantile(CPU_PEAK),
            memory_bytes=None if memory_kib is None else round(memory_kib * KIB),
        )


class Minute:
    """The mean CPU and the largest memory of each thing in the minute that goes on."""

    def __init__(self) -> None:
        self._cpu: dict[str, tuple[float, int]] = {}
        self._memory: dict[str, int] = {}

    def take(self, uses: Mapping[str, Use]) -> None:
        """Take one second in."""
        for key, use in uses.items():
            if use.cpu_millicores is not None:
                total, seconds = self._cpu.get(key, (0.0, 0))
                self._cpu[key] = total + use.cpu_millicores, seconds + 1
            if use.memory_bytes is not None:
                self._memory[key] = max(use.memory_bytes, self._memory.get(key, 0))

    def end(self) -> dict[str, Use]:
        """Return the minute by key, and begin the next."""
        cpu, memory = self._cpu, self._memory
        self._cpu, self._memory = {}, {}
        return {
            key: Use(
                cpu_millicores=cpu[key][0] / cpu[key][1] if key in cpu else None,
                memory_bytes=memory.get(key),
            )
            for key in {**cpu, **memory}
        }


class Predictor:
    """All models of one node. ``pods`` are by uid."""

    def __init__(self, now: float) -> None:
        self.pods: dict[str, Model] = {}
        self.prod = Model(now)
        self.system = Model(now)
        self._minute = Minute()
        self._due = now + TRAINING_SECONDS

    def take(self, used: Usage, by_path: Mapping[str, Pod], now: float) -> None:
        """Take one second's usage in (pods by the path of their group), and train when a minute is over."""
        known = {by_path[path].uid: use for path, use in used.pods.items() if path in by_path}
        prod = [used.pods[path] for path, pod in by_path.items() if pod.band == "prod" and path in used.pods]
        # A name that no uid can be.
        self._minute.take(known | {"/prod": _sum(prod), "/system": used.system})
        if now >= self._due or now < self._due - 2 * TRAINING_SECONDS:  # the second: the clock was set back
            self._due = now + TRAINING_SECONDS
            self._train(self._minute.end(), now)

    def _train(self, minute: Mapping[str, Use], now: float) -> None:
        for key, use in minute.items():
            if key in ("/prod", "/system"):
                (self.prod if key == "/prod" else self.system).train(use, now)
                continue
            model = self.pods.get(key)
            if model is None:
                model = self.pods[key] = Model(now)
            model.train(use, now)
        self.pods = {uid: model for uid, model in self.pods.items() if now - model.seen_at < FORGOTTEN_SECONDS}
        if len(self.pods) > MAX_PODS:
            newest = sorted(self.pods, key=lambda uid: -self.pods[uid].seen_at)[:MAX_PODS]
            self.pods = {uid: self.pods[uid] for uid in newest}

    def peak(self, now: float) -> Use:
        """Return what all prod pods together are expected to use at most; unknown in the first half hour."""
        if now - self.prod.since < PEAK_AFTER_SECONDS:
            return Use()
        found = self.prod.peak()
        return _margin(found)

    def reclaimable(self, pods: Iterable[Pod], allocatable: Use, now: float, ratio: Fraction = Fraction(1)) -> Use:
        """Return how much of what prod pods asked for can be lent out; None where nothing can be said yet.

        ``ratio``: how many reference CPUs, in which pods ask, one CPU of the node counts for.
        """
        prod = [pod for pod in pods if pod.active and pod.band == "prod"]
        cpu = {pod.uid: _cpu_request(pod, ratio) for pod in prod}
        memory = {pod.uid: float(sum(one.request_memory_bytes() for one in pod.containers)) for pod in prod}
        return Use(
            cpu_millicores=self._reclaimable(prod, "cpu", cpu, allocatable.cpu_millicores, now),
            memory_bytes=_whole(self._reclaimable(prod, "memory", memory, allocatable.memory_bytes, now)),
        )

    def _reclaimable(
        self, prod: list[Pod], resource: str, requests: Mapping[str, float], allocatable: float | None, now: float
    ) -> float | None:
        """Return the smallest of three: pod by pod, all of them against their sum, and what the node has besides.

        CPU of LSE pods is never lent out; neither is anything of a pod that is not known for long enough.
        """
        both = [_amount(_margin(model.peak()), resource) for model in (self.prod, self.system)]
        lendable = [pod for pod in prod if resource == "memory" or pod.qos != "LSE"]
        peaks = {pod.uid: self._peak(pod, resource, now) for pod in lendable}
        warm = {uid: peak for uid, peak in peaks.items() if peak is not None}
        if (lendable and not warm) or both[0] is None or both[1] is None:
            return None
        by_pod = sum(max(requests[uid] - peak, 0.0) for uid, peak in warm.items())
        together = sum(requests.values()) - both[0] - both[1]
        kept = sum(warm.get(pod.uid, requests[pod.uid]) for pod in prod)
        beside = math.inf if allocatable is None else allocatable - kept
        return max(min(by_pod, together, beside), 0.0)

    def _peak(self, pod: Pod, resource: str, now: float) -> float | None:
        model = self.pods.get(pod.uid)
        if model is None or now - model.since < COLD_SECONDS:
            return None
        return _amount(_margin(model.peak()), resource)


def _amount(use: Use, resource: str) -> float | None:
    return use.cpu_millicores if resource == "cpu" else use.memory_bytes


def _cpu_request(pod: Pod, ratio: Fraction) -> float:
    """Return what a pod asks for in the node's own CPUs; LSE and LSR pods get theirs in whole ones."""
    asked = pod.request_millicores()
    return float(asked if pod.qos_label in ("LSE", "LSR") else asked / ratio)


def _margin(use: Use) -> Use:
    return Use(
        cpu_millicores=None if use.cpu_millicores is None else use.cpu_millicores * SAFETY,
        memory_bytes=None if use.memory_bytes is None else round(use.memory_bytes * SAFETY),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _sum(uses: Iterable[Use]) -> Use:
    """Return the sum; unknown as soon as one is, and zero for nobody."""
    listed = list(uses)
    cpu = [use.cpu_millicores for use in listed if use.cpu_millicores is not None]
    memory = [use.memory_bytes for use in listed if use.memory_bytes is not None]
    return Use(
        cpu_millicores=sum(cpu) if len(cpu) == len(listed) else None,
        memory_bytes=sum(memory) if len(memory) == len(listed) else None,
    )


class _SavedModel(msgspec.Struct, frozen=True, kw_only=True):
    since: float
    seen_at: float
    trained_at: float
    cpu: dict[str, float] = {}
    memory: dict[str, float] = {}


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    prod: _SavedModel
    system: _SavedModel
    pods: dict[str, _SavedModel] = {}


def dump(predictor: Predictor) -> bytes:
    """Return the checkpoint of all models."""
    return msgspec.json.encode(
        _Saved(
            version=CHECKPOINT_VERSION,
            prod=_saved(predictor.prod),
            system=_saved(predictor.system),
            pods={uid: _saved(model) for uid, model in predictor.pods.items()},
        )
    )


def _saved(model: Model) -> _SavedModel:
    cpu, memory = (
        {bucket: round(count, 3) for bucket, count in histogram.to_json().items()}
        for histogram in (model.cpu, model.memory)
    )
    return _SavedModel(since=model.since, seen_at=model.seen_at, trained_at=model.trained_at, cpu=cpu, memory=memory)


def restore(predictor: Predictor, data: bytes, now: float) -> None:
    """Take a checkpoint in, faded for the time since it was made; what was not seen for too long is left out.

    :raises ValueError: if it is not a checkpoint of this version, or one of its histograms is none.
    """
    try:
        saved = msgspec.json.decode(data, type=_Saved)
    except MALFORMED as error:
        raise ValueError(str(error)) from None
    if saved.version != CHECKPOINT_VERSION:
        raise ValueError(f"version {saved.version}, and not {CHECKPOINT_VERSION}")
    prod, system = (
        _model(model, now) if now - model.seen_at < FORGOTTEN_SECONDS else Model(now)
        for model in (saved.prod, saved.system)
    )
    pods = {uid: _model(model, now) for uid, model in saved.pods.items() if now - model.seen_at < FORGOTTEN_SECONDS}
    predictor.prod, predictor.system, predictor.pods = prod, system, pods


def _model(saved: _SavedModel, now: float) -> Model:
    if not all(map(math.isfinite, (saved.since, saved.seen_at, saved.trained_at))):
        raise ValueError("a time is not a number")
    # A clock that was ahead when this was written makes nothing younger than now.
    model = Model(min(saved.since, now))
    model.seen_at, model.trained_at = min(saved.seen_at, now), min(saved.trained_at, now)
    model.cpu, model.memory = Histogram.from_json(saved.cpu), Histogram.from_json(saved.memory)
    model.fade(now)
    return model


def load(directory: pathlib.Path, predictor: Predictor, now: float) -> str:
    """Take the checkpoint of a directory in; return what a person should know, empty when all is well."""
    path = directory / FILE
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES >> 20} MiB")
        restore(predictor, data, now)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        return f"{path}: {error}; dropped, predictions start anew"
    return ""


def save(directory: pathlib.Path, data: bytes) -> None:
    """Write a checkpoint in place of the last one, whole or not at all.

    :raises OSError: if it cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE
    beside = path.with_suffix(".tmp")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
