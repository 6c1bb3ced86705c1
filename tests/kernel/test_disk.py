import pytest

from cotenant.kernel import disk


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["sda", "sda1", "sda12", "sdaa", "sdaa1"], ["sda", "sdaa"]),
        (["nvme0n1", "nvme0n1p1", "nvme1n1"], ["nvme0n1", "nvme1n1"]),
        (["mmcblk0", "mmcblk0p1"], ["mmcblk0"]),
        (["xvda1"], ["xvda1"]),  # a Xen guest may be given a partition alone
        (["dm-0", "md127", "loop0", "ram0", "zram0", "sr0", "zd16", "vda"], ["vda"]),
        (["nvme0n1", "nvme0c0n1", "nvme0c1n1", "nvme0n2"], ["nvme0c0n1", "nvme0c1n1", "nvme0n2"]),
    ],
)
def test_lowest_level_by_name_alone(empty, names, expected):
    assert list(disk.Disks(empty.root).lowest_level(names)) == expected


def test_sysfs_tells_disks_from_partitions_and_from_what_stands_on_them(empty):
    for path in ("sda/queue/rotational", "foo0/slaves/sda/dev", "cciss!c0d0/queue/rotational"):
        empty.write(f"sys/block/{path}", "0\n")
    disks = disk.Disks(empty.root)
    assert disks.lowest_level(["sda", "sda1", "foo0", "cciss/c0d0", "cciss/c0d0p1"]) == ("sda", "cciss/c0d0")


@pytest.mark.parametrize(
    ("name", "rotational", "expected"),
    [
        ("vda", "1", "cloud"),
        ("xvdb", "1", "cloud"),
        ("nvme0n1", "0", "nvme"),
        ("sda", "0", "ssd"),
        ("sda", "1", "spinning"),
        ("sda", "x", "malformed"),
        ("sda", None, "unsupported"),
    ],
)
def test_kind(empty, name, rotational, expected):
    if rotational is not None:
        empty.write(f"sys/block/{name}/queue/rotational", f"{rotational}\n")
    assert disk.Disks(empty.root).kind(name) == expected


def test_a_scsi_disk_of_a_hypervisor_is_a_cloud_disk(empty):
    (empty.directory / "sys/block").mkdir(parents=True)
    link = empty.directory / "sys/block/sda"
    link.symlink_to("../devices/pci0000:00/0000:00:04.0/virtio2/host0/target0:0:0/0:0:0:0/block/sda")
    assert disk.Disks(empty.root).kind("sda") == "cloud"
    empty.write("sys/block/nvme0n1/device/model", "Amazon Elastic Block Store\n")
    assert disk.Disks(empty.root).kind("nvme0n1") == "cloud"
