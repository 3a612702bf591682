"""Host, storage, sensors and processor: from files and tools, with nothing where nothing is told."""

from __future__ import annotations

import json
import plistlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tasc_compute.contracts import HostArch, HostPlatform, ThermalInfo, VolumeInfo
from tasc_compute.devices import host, storage
from tasc_compute.devices.cpu import CpuTimes, utilization
from tasc_compute.devices.storage import Disk, Mount
from tasc_compute.devices.thermals import thermals

GIB = 1024**3
Put = Callable[[str, str], None]


def test_the_tightest_limit_of_a_control_group_and_its_parents_counts(put: Put, root: Path) -> None:
    put("/proc/self/cgroup", "1:name=systemd:/\n0::/kubepods/pod1\n")
    put("/sys/fs/cgroup/kubepods/memory.max", str(8 * GIB))
    put("/sys/fs/cgroup/kubepods/memory.current", str(2 * GIB))
    put("/sys/fs/cgroup/kubepods/pod1/memory.max", str(16 * GIB))
    put("/sys/fs/cgroup/kubepods/pod1/memory.current", str(6 * GIB))
    put("/sys/fs/cgroup/kubepods/pod1/memory.stat", f"anon 5\ninactive_file {GIB}\n")
    assert host.cgroup_memory(root) == (8 * GIB, 6 * GIB)


def test_no_limit_is_no_number(put: Put, root: Path) -> None:
    assert host.cgroup_memory(root) == (None, None)
    put("/proc/self/cgroup", "0::/a/../../b\n")
    put("/sys/fs/cgroup/memory.max", "max")
    assert host.cgroup_memory(root) == (None, None)


def test_host_memory_is_no_more_than_its_control_group_allows(put: Put, root: Path, runner) -> None:
    put("/proc/self/cgroup", "0::/\n")
    put("/sys/fs/cgroup/memory.max", "1048576")
    put("/sys/fs/cgroup/memory.current", "1000000")
    found = host.host_memory(runner, root, HostPlatform.LINUX)
    assert (found.total, found.available) == (1048576, 48576)


@pytest.mark.parametrize(
    ("cpuinfo", "lscpu", "board", "expected"),
    [
        ("processor : 0\nmodel name\t: AMD EPYC 7763\n", None, None, "AMD EPYC 7763"),
        (
            "processor : 0\nCPU implementer : 0x41\n",
            "Architecture: aarch64\nModel name:   Neoverse-V2\n",
            None,
            "Neoverse-V2",
        ),
        ("processor : 0\n", "Model name:  -\n", "NVIDIA Jetson AGX Orin\0", "NVIDIA Jetson AGX Orin"),
        ("", None, None, "arm64"),
    ],
)
def test_a_processor_has_a_name_also_where_the_kernel_prints_none(
    cpuinfo: str, lscpu: str | None, board: str | None, expected: str, put: Put, tool, make_context
) -> None:
    put("/proc/cpuinfo", cpuinfo)
    if lscpu is not None:
        tool("lscpu", {"": lscpu})
    if board is not None:
        put("/proc/device-tree/model", board)
    assert host.cpu_model(make_context(arch=HostArch.ARM64)) == expected


def test_a_share_of_processor_time_needs_time_to_have_passed() -> None:
    assert utilization(CpuTimes(100, 10), CpuTimes(101, 10.25)) == 25.0
    assert utilization(CpuTimes(100, 10), CpuTimes(100.01, 10.01)) is None
    assert utilization(None, CpuTimes(1, 1)) is None
    assert utilization(CpuTimes(100, 10), CpuTimes(101, 9)) == 0.0


# --- storage ----------------------------------------------------------------------------------------------------------

NESTED = {
    "blockdevices": [
        {
            "name": "nvme0n1",
            "path": "/dev/nvme0n1",
            "model": "Samsung SSD 990 PRO 2TB",
            "rota": False,
            "mountpoint": None,
            "type": "disk",
            "children": [
                {
                    "name": "p1",
                    "model": None,
                    "rota": False,
                    "children": [{"name": "luks", "model": None, "mountpoints": ["/", None, "/home"]}],
                }
            ],
        },
        {
            "name": "sda",
            "model": "WDC WD40EFRX  ",
            "rota": "1",
            "size": "4000787030016",
            "mountpoint": "/data",
            "type": "disk",
        },
        {"name": "loop0", "mountpoint": 7, "rota": [], "children": "none"},
    ]
}


def test_a_mount_finds_the_model_at_the_top_of_its_nest() -> None:
    disks = storage.disks_of_lsblk(NESTED)  # type: ignore[arg-type]  # JSON
    assert disks == {
        "/": Disk("Samsung SSD 990 PRO 2TB", False),
        "/home": Disk("Samsung SSD 990 PRO 2TB", False),
        "/data": Disk("WDC WD40EFRX", True),
    }


@pytest.mark.parametrize(
    "value",
    [None, [], {"blockdevices": None}, {"blockdevices": [3]}, {"blockdevices": [{"children": [{"children": [None]}]}]}],
)
def test_another_shape_has_no_disks(value: object) -> None:
    assert storage.disks_of_lsblk(value) == {}  # type: ignore[arg-type]  # hostile on purpose


def test_only_local_and_fixed_file_systems_are_looked_at() -> None:
    mounts = [
        Mount("server:/x", "/mnt/nfs", "nfs4"),
        Mount("overlay", "/", "overlay"),
        Mount("tmpfs", "/tmp", "tmpfs"),
        Mount("/dev/sdb1", "/media/ann/KEY", "vfat"),
        Mount("/dev/loop1", "/snap/core", "squashfs"),
        Mount("/dev/sda2", "/data", "xfs"),
        Mount("/dev/sda1", "/", "ext4"),
    ]
    assert [mount.mountpoint for mount in storage.chosen(mounts)] == ["/", "/data"]


def test_a_disk_space_counts_once() -> None:
    spaces = {"/": (1, 100, 40), "/bind": (1, 100, 40), "/data": (2, 300, 30), "/broken": None}
    mounts = [Mount("/dev/sda1", name, "ext4") for name in spaces]
    found = storage.volumes_of(mounts, {"/": Disk("Disk", False)}, lambda mountpoint: spaces[mountpoint])
    assert found == (VolumeInfo("/", 100, 40, "ext4", "Disk", False), VolumeInfo("/data", 300, 30, "ext4", None, None))


def test_apfs_volumes_share_their_container() -> None:
    spaces = {"/": (1, 500, 90), "/System/Volumes/Data": (2, 500, 90)}
    mounts = [Mount("/dev/disk3s1s1", "/", "apfs"), Mount("/dev/disk3s5", "/System/Volumes/Data", "apfs")]
    assert [v.mount for v in storage.volumes_of(mounts, {}, lambda mountpoint: spaces[mountpoint])] == ["/"]


def test_diskutil_names_a_disk() -> None:
    document = plistlib.dumps({"MediaName": "APPLE SSD AP1024", "SolidState": True}).decode()
    assert storage.disk_of_diskutil("warning\n" + document) == Disk("APPLE SSD AP1024", False)
    for broken in (document[:60], "", "no plist", plistlib.dumps([1]).decode()):
        assert storage.disk_of_diskutil(broken) == Disk(None, None)


def test_this_hosts_volumes_name_a_size(make_context) -> None:
    found = storage.volumes(make_context())
    assert all(0 < item.total_bytes >= item.free_bytes for item in found)
    assert json.dumps([item.mount for item in found]) != "" and len({item.mount for item in found}) == len(found)


# --- sensors ----------------------------------------------------------------------------------------------------------


def test_sensors_are_known_by_chip_and_label_and_impossible_ones_are_left_out(put: Put, root: Path) -> None:
    for chip, (name, readings) in {
        "hwmon0": ("k10temp", {"temp1": ("61250", "Tctl")}),
        "hwmon10": ("nvme", {"temp1": ("38850", None), "temp2": ("-273150", "Broken"), "temp3": ("200000", None)}),
        "hwmon2": ("amdgpu", {"temp1": ("51000", "edge"), "temp2": ("not a number", None)}),
    }.items():
        put(f"/sys/class/hwmon/{chip}/name", f"{name}\n")
        for reading, (value, label) in readings.items():
            put(f"/sys/class/hwmon/{chip}/{reading}_input", value)
            if label:
                put(f"/sys/class/hwmon/{chip}/{reading}_label", label)
    (root / "sys/class/hwmon/hwmon2/temp3_input").mkdir()
    assert thermals(root) == (
        ThermalInfo("k10temp Tctl", 61.25, "cpu"),
        ThermalInfo("amdgpu edge", 51.0, "gpu"),
        ThermalInfo("nvme temp1", 38.85, "chassis"),
    )


def test_a_host_without_sensors_has_none(root: Path) -> None:
    assert thermals(root) == ()
