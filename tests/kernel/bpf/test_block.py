"""Values of the block programs' maps, as bytes, become traces."""

import struct

import pytest

from cotenant.kernel import paths
from cotenant.kernel.bpf import block, counts
from cotenant.kernel.tracing import DiskTrace


def entry(histograms: list[dict[int, int]], totals: tuple[int, int, int, int]) -> bytes:
    packed = b""
    for histogram in histograms:
        packed += struct.pack(f"={counts.BUCKETS}I", *(histogram.get(b, 0) for b in range(counts.BUCKETS)))
    return packed + bytes(len(packed) % 8) + struct.pack("=QQQQ", *totals)


def test_a_disks_first_entry():
    trace = block.disk_trace(entry([{50: 2}, {60: 3}, {0: 5}, {49: 5}], (2, 3, 8192, 12288)), None)
    assert (trace.reads, trace.writes, trace.read_bytes, trace.write_bytes) == (2, 3, 8192, 12288)
    assert trace.read_latency.to_json() == {"50": 2}
    assert trace.write_latency.to_json() == {"60": 3}
    assert trace.latency.to_json() == {"50": 2, "60": 3}
    assert trace.queue.to_json() == {"0": 5}
    assert trace.device.to_json() == {"49": 5}


def test_a_disks_next_entry_counts_the_difference():
    old = entry([{50: 2}, {60: 3}, {0: 5}, {49: 5}], (2, 3, 8192, 12288))
    new = entry([{50: 2}, {60: 4, 61: 1}, {0: 6, 3: 1}, {49: 7}], (2, 5, 8192, 20480))
    trace = block.disk_trace(new, old)
    assert (trace.reads, trace.writes, trace.read_bytes, trace.write_bytes) == (0, 2, 0, 8192)
    assert trace.latency.to_json() == {"60": 1, "61": 1}
    assert trace.queue.to_json() == {"0": 1, "3": 1}
    assert trace.device.to_json() == {"49": 2}


def test_a_groups_entry():
    old = entry([{50: 1}], (1, 0, 4096, 0))
    trace = block.group_trace(entry([{50: 1, 70: 2}], (1, 2, 4096, 8192)), old)
    assert (trace.reads, trace.writes, trace.read_bytes, trace.write_bytes) == (0, 2, 0, 8192)
    assert trace.block.to_json() == {"70": 2}


def pending(device: int, made_ns: int, issued_ns: int) -> bytes:
    return struct.pack("=QQQQQ", made_ns, issued_ns, device, 1, 0)


def test_requests_in_flight_and_the_oldest():
    disks = {7: DiskTrace(reads=1)}
    requests = [
        pending(7, 5_000, 5_000),
        pending(7, 9_000, 9_000),
        pending(8, 100, 0),
        pending(9, 12_000, 12_000),
        pending(6, 2_000, 9_000),
    ]
    block.add_pending(disks, requests, 10_000)
    assert (disks[7].in_flight, disks[7].oldest_in_flight_usec) == (2, 5.0)
    assert disks[6].oldest_in_flight_usec == 8.0, "with its time in the queue"
    assert 8 not in disks, "what waits in the queue is not with the disk"
    assert (disks[9].in_flight, disks[9].oldest_in_flight_usec) == (1, 0.0), "issued while we read"


@pytest.mark.parametrize(
    ("devices", "majors"),
    [
        (
            "Character devices:\n  1 mem\n\nBlock devices:\n  7 loop\n  9 md\n252 device-mapper\n254 mdp\n",
            (7, 9, 254, 252),
        ),
        ("Block devices:\n259 blkext\n254 virtblk\n", (7, 9, 2**32 - 1, 2**32 - 1)),
        ("Character devices:\n 10 device-mapper\n", (7, 9, 2**32 - 1, 2**32 - 1)),
        (None, (7, 9, 2**32 - 1, 2**32 - 1)),
    ],
    ids=["all loaded", "none loaded", "a character device", "no file"],
)
def test_what_sits_above_the_disks_is_ignored(tmp_path, devices, majors):
    (tmp_path / "proc").mkdir()
    if devices is not None:
        (tmp_path / "proc" / "devices").write_text(devices)
    assert block.ignored_majors(paths.Root(tmp_path)) == majors
