import pytest

from cotenant.act import steadying
from cotenant.model.node import Usage, Use
from cotenant.units.plan import PlanItem

CPUS = 4


def item(
    old: str, new: str, *, file: str = "cpu.cfs_quota_us", strategy: str = "cpu_suppress", group: str = "be"
) -> PlanItem:
    path = f"sys/fs/cgroup/cpu/{group}/{file}"
    return PlanItem(op="write", path=path, old=old, new=new, strategy=strategy, reason="r")


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (item("200000", "219000"), False),
        (item("200000", "181000"), False),
        (item("200000", "221000"), True),
        (item("200000", "179000"), True),
        (item("200000 100000", "219000 100000", file="cpu.max"), False),
        (item("20000 10000", "22100 10000", file="cpu.max"), True),
        (item("-1", "200000"), True),
        (item("200000", "-1"), True),
        (item("200000", "201000", strategy="isolate"), True),
        (item("1", "0", file="cpu.idle"), True),
    ],
)
def test_a_quota_that_hardly_changes_is_not_written(change: PlanItem, kept: bool) -> None:
    assert steadying.calm([change], CPUS, None) == ((change,) if kept else ())


@pytest.mark.parametrize(("ago", "kept"), [(None, True), (4.9, False), (5.0, True)])
def test_what_the_fast_path_took_is_not_given_back_at_once(ago: float | None, kept: bool) -> None:
    more, less = item("100000", "200000"), item("200000", "100000", group="pod")
    assert steadying.calm([more, less], CPUS, ago) == ((more, less) if kept else (less,))


def test_what_is_inside_a_group_goes_with_its_quota() -> None:
    down, less = item("300000", "250000", group="be/pod/inner"), item("400000", "250000")
    free = item("250000", "-1", group="be/pod/inner")
    assert steadying.calm([down, less, free], CPUS, 0.0) == (down, less, free)
    more, own = item("250000", "400000"), item("-1", "300000", group="be/pod/inner")
    assert steadying.calm([more, own], CPUS, 0.0) == ()
    assert steadying.calm([more, own], CPUS, None) == (more, own)
    close = item("254000", "-1", group="be/inner")
    assert steadying.calm([close, item("255000", "250000")], CPUS, None) == ()


def test_usage_is_a_mean_and_unknown_while_the_newest_is() -> None:
    steady = steadying.Steadying()
    for used in (0.0, 0.0, 0.0, 0.0, 1000.0):
        mean = steady.usage(Usage(node=Use(cpu_millicores=used), pods={"a": Use(cpu_millicores=used)}))
    assert mean.node.cpu_millicores == 200
    assert mean.pods["a"].cpu_millicores == 200
    assert steady.usage(Usage()).node.cpu_millicores is None
    assert steady.usage(Usage(node=Use(cpu_millicores=0.0))).node.cpu_millicores == 250
