import msgspec
import pytest

from cotenant.web import page
from cotenant.web.feed import Moment


@pytest.fixture
def moment(feed) -> Moment:  # type: ignore[no-untyped-def]
    return feed.moment


def test_unavailable_says_each_thing_once_and_lasting_reasons_first(moment: Moment) -> None:
    missing = {
        "cgroups.psi.io_some_ratio": "psi_disabled",
        "block.devices.vda.oldest_in_flight_usec": "too_few",
        "cgroups.psi.cpu_some_ratio": "psi_disabled",
        "llc": "no_pmu",
        "llc.miss_ratio": "no_pmu",
        "llc.occupancy_bytes": "no_resctrl",
    }
    sample = msgspec.structs.replace(moment.sample, missing=missing)
    evaluation = msgspec.structs.replace(moment.evaluation, missing={"llc.mpki": "no_pmu"})
    found = page.unavailable_of(msgspec.structs.replace(moment, sample=sample, evaluation=evaluation))
    names = {item["reason"]: item["names"] for item in found}
    assert names["no_pmu"] == ["Last-level cache"]
    assert names["no_resctrl"] == ["LLC occupancy"]
    assert names["psi_disabled"] == ["Some groups: I/O stall (some), CPU stall"]
    assert names["too_few"] == ["vda: oldest in flight"]
    assert found[-1]["reason"] == "too_few"
    assert all(item["why"] and item["remedy"] for item in found)


def test_the_bucket_comes_with_what_it_goes_by(moment: Moment) -> None:
    """A mean of 0.22 is called severe because one detection is: the page says which."""
    worst = page.worst_of(moment.evaluation)
    assert worst is not None
    assert worst["index"] == max(one.index or 0.0 for one in moment.evaluation.detections.values())
    now = page.Page().tick(moment, []).html["now"]
    assert f"by the worst, {worst['title']} <b>{worst['index']:.2f}</b>" in now
    unknown = msgspec.structs.replace(moment.evaluation, detections={}, interference_level=None, bucket="unknown")
    assert "by the worst" not in page.Page().tick(msgspec.structs.replace(moment, evaluation=unknown), []).html["now"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90061, "25 h 1 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert page.duration_text(seconds) == text


def test_the_lowest_threshold_is_drawn(moment: Moment) -> None:
    assert page.thresholds_of(moment.evaluation) == {"block.p99_usec": 30e3}


def test_every_line_of_every_panel_has_a_colour_and_one_unit(moment: Moment) -> None:
    from cotenant.model import wording
    from cotenant.web.panels import PANELS

    assert len({panel.key for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert len(panel.names) <= 4
        assert len({wording.unit_of(name) for name in panel.names}) == 1, panel.key
