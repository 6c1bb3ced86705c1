import msgspec
import pytest

from cotenant.model.enforcement import EnforcementState, HeldFile
from cotenant.model.evaluation import Detection, Suspect
from cotenant.model.incident import Isolated
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


ISOLATED = Isolated(detection="ioCongestion", suspect="backup", victim="web.service", start="t", steps=2)
HELD = HeldFile(path="a", target="1", actual="1", strategy="cpu_suppress", reason="r", original="2")


@pytest.mark.parametrize(
    ("enforcement", "said"),
    [
        (None, "only watched"),
        (EnforcementState(mode="dry-run", policy="p", interface=""), "Dry run: nothing is written"),
        (EnforcementState(mode="observe", policy="p", interface="", conflict="koordlet"), "koordlet runs here too"),
        (EnforcementState(mode="enforce", policy="p", interface="", isolation=ISOLATED), "backup is held back for"),
        (EnforcementState(mode="enforce", policy="p", interface="", held=[HELD]), "hold our values: 1<"),
        (
            EnforcementState(mode="enforce", policy="p", interface="", offline_withheld_millicores=1500.0),
            "1.50 CPUs from offline work",
        ),
    ],
)
def test_what_is_done_stands_beside_who_is_hurt(hurt, enforcement: EnforcementState | None, said: str) -> None:  # type: ignore[no-untyped-def]
    now = page.Page().tick(msgspec.structs.replace(hurt.moment, enforcement=enforcement), []).html["now"]
    assert said in now
    calm = msgspec.structs.replace(hurt.moment.evaluation, detections={})
    assert said not in page.Page().tick(msgspec.structs.replace(hurt.moment, evaluation=calm), []).html["now"]


def test_hard_limits_are_told_in_words_and_names_left_out_are_counted(hurt) -> None:  # type: ignore[no-untyped-def]
    many = [Suspect(name=f"job-{n}", confidence=0.9, evidence="e") for n in range(7)]
    found = Detection(triggered=True, index=0.9, suspects=many)
    evaluation = msgspec.structs.replace(
        hurt.moment.evaluation, detections={"ioCongestion": found}, hard=["psiMemoryFull"]
    )
    sample = msgspec.structs.replace(hurt.moment.sample, missing={"online": "no_class"})
    moment = msgspec.structs.replace(hurt.moment, evaluation=evaluation, sample=sample)
    now = page.Page().tick(moment, []).html["now"]
    assert "Hard limit in force: every task waited for memory." in now
    assert "and 3 more" in now
    assert "no group is marked online. <a" in now


def test_only_the_newest_incidents_are_open_to_the_eye(moment: Moment, hurt) -> None:  # type: ignore[no-untyped-def]
    incidents = [msgspec.structs.replace(hurt.incident_list[1], id=n) for n in range(40)]
    listed = page.Page().tick(moment, incidents).html["incidents"]
    newest, _, older = listed.partition("<summary>Older</summary>")
    assert newest.count('class="incident') == page.INCIDENTS_SHOWN
    assert listed.count('class="incident') == page.INCIDENTS_LISTED
    assert "/api/v1/incidents" in older


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
