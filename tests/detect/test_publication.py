import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.detect.samples import at, rule

from cotenant.detect import engine, publication, rules
from cotenant.model import evaluation

HYSTERESIS = rules.Hysteresis()


def found(
    bucket: evaluation.Bucket = "none",
    hard: tuple[evaluation.HardLimit, ...] = (),
    triggered: bool | None = False,
    suspects: tuple[str, ...] = (),
    missing: dict[str, evaluation.MissingReason] | None = None,
) -> evaluation.Evaluation:
    return evaluation.Evaluation(
        node="n",
        time="t",
        interference_level=None if bucket == "unknown" else 0.5,
        bucket=bucket,
        coverage=1.0,
        detections={
            "ioCongestion": evaluation.Detection(
                triggered=triggered,
                index=0.5,
                suspects=[evaluation.Suspect(name=name, confidence=1, evidence="") for name in suspects],
            )
        },
        hard=list(hard),
        missing=missing or {},
    )


def tell(node: publication.Publication, second: float, *what: object, **more: object) -> publication.Published:
    return node.update(found(*what, **more), second, HYSTERESIS)  # type: ignore[arg-type]


def test_unknown_only_after_60_s_of_silence() -> None:
    node = publication.Publication()
    tell(node, 0, "high", triggered=True)
    assert node.silent(60).bucket == "high"
    assert not node.told.material
    silent = node.silent(60.1)
    assert (silent.bucket, silent.interference_level, silent.triggered, silent.material) == ("unknown", None, (), True)
    assert not node.silent(70).material


def test_nothing_known_counts_as_silence() -> None:
    node = publication.Publication()
    tell(node, 0, "high", triggered=True)
    assert tell(node, 60, "unknown", triggered=None).bucket == "high"
    assert tell(node, 61, "unknown", triggered=None).bucket == "unknown"


def test_a_detection_that_is_unknown_stays_told_for_as_long() -> None:
    node = publication.Publication()
    tell(node, 0, "high", triggered=True)
    assert tell(node, 60, "high", triggered=None).triggered == ("ioCongestion",)
    assert tell(node, 61, "high", triggered=None).triggered == ()


def test_a_hard_limit_is_lifted_after_the_hold_of_clear_state() -> None:
    node = publication.Publication()
    assert tell(node, 0, hard=("psiMemoryFull",)).hard == ("psiMemoryFull",)
    assert tell(node, 1).hard == ("psiMemoryFull",)
    assert tell(node, 20.9).hard == ("psiMemoryFull",)
    lifted = tell(node, 21)
    assert (lifted.hard, lifted.material) == ((), True)


def test_clear_state_with_a_break_starts_again_and_unknown_is_not_clear() -> None:
    node = publication.Publication()
    tell(node, 0, hard=("psiMemoryFull",))
    tell(node, 1)
    tell(node, 15, hard=("psiMemoryFull",))
    tell(node, 16)
    assert tell(node, 30, missing={"psi.memory_full_ratio": "stale"}).hard == ("psiMemoryFull",)
    tell(node, 31)
    assert tell(node, 50).hard == ("psiMemoryFull",)
    assert tell(node, 51).hard == ()


def test_a_hard_limit_of_which_nothing_is_known_expires() -> None:
    node = publication.Publication(expiry_s=100)
    tell(node, 0, hard=("psiMemoryFull",))
    assert node.silent(99).hard == ("psiMemoryFull",)
    assert node.silent(100).hard == ()


def test_a_bucket_rises_at_once_and_falls_slowly() -> None:
    node = publication.Publication()
    buckets = ["low", "severe", "high", "severe", *["medium"] * 22]
    told = [tell(node, second, bucket).bucket for second, bucket in enumerate(buckets)]
    assert told == ["low", *["severe"] * 23, *["medium"] * 2]


def test_suspects_change_slowly_unless_the_detections_do() -> None:
    node = publication.Publication()
    assert tell(node, 0, triggered=True, suspects=("a",)).suspects == {"ioCongestion": ("a",)}
    assert not tell(node, 1, triggered=True, suspects=("b",)).material
    assert tell(node, 10, triggered=True, suspects=("b",)).suspects == {"ioCongestion": ("a",)}
    assert tell(node, 11, triggered=True, suspects=("b",)).suspects == {"ioCongestion": ("b",)}
    assert tell(node, 12).suspects == {}


def test_a_new_leader_loosens_nothing() -> None:
    before = publication.Published(0.5, "severe", 1.0, ("psiIoSome",), ("ioCongestion",), {"ioCongestion": ("a",)})
    node = publication.Publication()
    node.adopt(before, 0)
    told = tell(node, 1, "unknown", triggered=None)
    assert (told.bucket, told.hard, told.triggered, told.material) == (
        "severe",
        ("psiIoSome",),
        ("ioCongestion",),
        False,
    )


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32), level=st.sampled_from([0.05, 0.25, 0.3, 0.5, 0.75]))
def test_noise_around_a_threshold_or_a_bound_does_not_flap(seed: int, level: float) -> None:
    """Ten minutes of white noise of ±10 % around the threshold, or around what bounds two buckets."""
    noise = random.Random(seed)
    by = rule(f"psi.io_some_ratio 0 {level} 1", spec=f"  hardLimits: {{psiIoSomeRatio: {level}}}\n")
    judge, node = engine.Engine(by), publication.Publication()
    changes = 0
    for second in range(600):
        value = min(max(level * (1 + noise.uniform(-0.1, 0.1)), 0), 1)
        judged = judge.evaluate(at(second, psi={"io_some_ratio": value}))
        changes += node.update(judged, second, by.hysteresis).material
    assert changes <= 5  # known, its bucket once up and once down, triggered, the hard limit
