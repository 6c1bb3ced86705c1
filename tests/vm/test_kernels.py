"""Real kernels in QEMU: what the executor writes, what eBPF counts, what a policy does, and that all is put back."""

import fcntl
import pathlib
from typing import Any

import pytest
from tests.vm import building, machine

pytestmark = pytest.mark.vm

BOOTS = [("6.12", 2), ("6.1", 1)]


def booted(series: str, version: int, kind: str, directory: pathlib.Path) -> dict[str, Any]:
    """Boot, run the parts of one kind, and return what they found; print how long each took."""
    script = pathlib.Path(__file__).with_name("guest.py")
    machine.CACHE.mkdir(parents=True, exist_ok=True)
    with open(machine.CACHE / "boot.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            found = machine.boot(series, version, script, directory, kind)
        except building.Unavailable as error:
            pytest.skip(str(error))
    print(f"{found['kernel']}: {found['seconds']}")
    assert found["failed"] == {}, "\n".join(found["failed"].values())
    return found


@pytest.fixture(scope="module", params=BOOTS, ids=lambda boot: f"{boot[0]} v{boot[1]}")
def guest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    series, version = request.param
    return {
        **booted(series, version, f"v{version}", tmp_path_factory.mktemp("vm")),
        "wanted": (series, version),
    }


def test_the_guest_is_the_kernel_that_was_asked_for(guest: dict[str, Any]) -> None:
    series, version = guest["wanted"]
    assert guest["kernel"].startswith(series + ".")
    assert guest["version"] == f"v{version}"
    assert guest["smt"] == [[0, 0], [1, 0], [2, 1], [3, 1]]


def test_every_write_is_taken_once_and_put_back(guest: dict[str, Any]) -> None:
    writes = guest["writes"]
    assert len(writes["first"]) >= 6
    assert set(writes["first"].values()) == {"written"}
    assert set(writes["second"].values()) == {"same"}
    assert writes["complete"]
    assert writes["changed"] == {}


def test_the_kernel_answers_as_the_trials_say(guest: dict[str, Any]) -> None:
    trials = guest["trials"]
    assert (trials["status"], trials["deviations"]) == (0, [])
    assert trials["interface"] == "mainline-idle"
    assert trials["tried"]


def test_check_names_what_this_kernel_has(guest: dict[str, Any]) -> None:
    check, v2 = guest["check"], guest["version"] == "v2"
    assert (check["status"], check["kernel"], check["cgroup"]["version"]) == (0, guest["kernel"], guest["version"])
    states = check["features"]
    for name in ("psi", "btf", "libbpf", "ebpf", "schedstat", "smt", "cpu-idle", "cpu-burst", "io-max"):
        assert states[name] == "available", name
    assert states["psi-cgroup"] == ("available" if v2 else "missing")
    assert states["core-scheduling"] == "missing"
    assert "unknown" not in {states[name] for name in ("memory-qos", "memory-high", "psi-irq", "perf")}


def test_a_command_runs_held_back_and_leaves_nothing(guest: dict[str, Any]) -> None:
    run = guest["run"]
    assert (run["status"], run["err"]) == (7, "")
    assert "cotenant-be/job" in run["out"]
    assert run["out"].rstrip().endswith("1")
    assert run["left"] == []


def test_siblings_are_found_not_expelled_on_mainline_and_the_checklist_passes(guest: dict[str, Any]) -> None:
    """What no kernel here has, expulsion, is not claimed: only that its absence is seen on real SMT topology."""
    states = {name: state for name, (state, _) in guest["regression"].items()}
    assert guest["regression"]["smt"][1].startswith("not expelled"), guest["regression"]
    assert "fail" not in states.values(), guest["regression"]
    assert {states[name] for name in ("priority", "smt", "cpuset", "cpu limit")} == {"pass"}


def test_block_requests_are_counted_as_made(guest: dict[str, Any]) -> None:
    """23 writes and 17 reads of 4 KiB, in their group and on their disk; the queue and the device part of each."""
    block = guest["tracing"]["block"]
    assert block["group"] == [23, 23 * 4096, 17, 17 * 4096, 40]
    assert block["disk"] == [23, 17, 40, 40, 40, 0]
    assert block["p99 usec"] > 0
    assert block["lost"] == {"no_room": 0, "unseen": 0, "recursion": 0}


def test_waits_are_counted_as_the_scheduler_counts_them(guest: dict[str, Any]) -> None:
    tracing = guest["tracing"]
    assert tracing["arguments"]["block_rq_issue"] == 1
    for method in ("stamped", "tracked"):
        found = tracing["run queue"][method]
        assert found["times run"] >= 100
        assert found["waits"] == pytest.approx(found["times run"], abs=3), method
        waits, times = found["crowd"]
        assert waits == pytest.approx(times, rel=0.1, abs=3), method
        assert found["crowd p50 usec"] > 1000, "three tasks on one CPU wait for each other's slices"
    assert tracing["chosen"] == [["block", None, "issue and complete"], ["run_queue", None, "stamped"]]


def test_no_program_stays_in_the_kernel_after_kill_9(guest: dict[str, Any]) -> None:
    assert guest["tracing"]["killed"] == {"while it ran": 4, "left": 0}


def test_without_ebpf_the_mean_wait_comes_from_schedstat(guest: dict[str, Any]) -> None:
    waiting = guest["waiting"]
    assert (waiting["source"], waiting["block source"]) == ("schedstat", "diskstats")
    assert 0 < waiting["calm mean usec"] < waiting["busy mean usec"]
    assert waiting["busy mean usec"] > 1000
    assert waiting["missing"]["cpu.run_queue_latency_p99_usec"] == "no_bpf"


def test_the_stall_of_a_group_is_known_on_v2(guest: dict[str, Any]) -> None:
    waiting = guest["waiting"]
    assert waiting["node cpu some"] > 0.5
    if guest["version"] == "v2":
        assert waiting["group cpu some"] > 0.5
    else:
        assert waiting["group cpu some"] is None


def test_a_trigger_of_half_a_second_wakes_and_the_fast_path_tightens(guest: dict[str, Any]) -> None:
    waiting = guest["waiting"]
    if guest["version"] == "v1":
        assert "trigger" not in waiting, "mainline accounts no stall by group on v1"
        return
    assert (waiting["trigger"]["taken"], waiting["trigger"]["calm"], waiting["trigger"]["stalled"]) == (
        True,
        False,
        True,
    )
    fast = waiting["fast path"]
    assert (fast["tightened"], fast["quota"], fast["after"]) == (1, "50000", "max 100000\n")
    print(f"stall to trigger {waiting['trigger']['seconds']:.3f} s, to the tighter quota {fast['seconds']:.3f} s")


def test_a_policy_limits_the_disk_and_places_whole_cores(guest: dict[str, Any]) -> None:
    policy = guest["policy"]
    assert policy["dry run"] == [0, True, True]
    assert (policy["status"], policy["again"]) == (0, [0, []]), policy["said"]
    assert {"block_io", "cpuset", "cpu_suppress", "group_identity"} <= set(policy["planned"])
    assert policy["idle"] == "1"
    assert policy["allowed"]["lse"] == [0, 1], "both threads of the first core"
    assert policy["allowed"]["ls"] == [2, 3]
    assert set(policy["allowed"]["be"]) <= {2, 3}
    text = " ".join(policy["disk"].values())
    assert "1048576" in text
    assert "100" in text.replace("1048576", "")
    free, limited = policy["seconds free and limited"]
    assert limited > max(1.2, free), "two MiB at one MiB a second"


def test_what_a_policy_wrote_is_put_back(guest: dict[str, Any]) -> None:
    policy = guest["policy"]
    assert (policy["restored"]["status"], policy["restored"]["left"]) == (0, [])
    v2 = guest["version"] == "v2"
    # With tasks in it a v2 group takes no empty list back; it has all that its parent has, and that is said.
    lists = {path: ["\n", "0-3\n"] for path in policy["changed"] if v2 and path.endswith("/cpuset.cpus")}
    assert policy["changed"] == lists
    assert bool(lists) == v2
    assert policy["allowed after"] == {name: [0, 1, 2, 3] for name in ("be", "ls", "lse")}


def test_up_enforce_that_was_killed_is_restored(guest: dict[str, Any]) -> None:
    if guest["version"] == "v1":
        assert "killed" not in guest, "its v1 files are tried where the tests run: tests/local"
        return
    killed = guest["killed"]
    assert killed["status"] is None, killed["log"]
    written = {path.rpartition("cotenant-")[2] for path in killed["written"]}
    assert {"be/cpu.max", "be/job/cpu.idle"} <= written, killed
    assert killed["stays"], "limits outlive the program"
    assert (killed["restored"]["status"], killed["restored"]["left"]) == (0, [])
    assert set(killed["written"]) <= {f"/{path}" for path in killed["restored"]["paths"]}
    assert killed["changed"] == {}
    assert (killed["second"]["status"], killed["second"]["paths"], killed["journal"]) == (0, [], False)
