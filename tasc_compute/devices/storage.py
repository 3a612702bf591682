"""Mounted local file systems and the disks under them.

Only file systems of local disks are looked at: asking a network mount for its size can block for ever, and overlays,
temporary and image mounts hold nothing of their own. Removable media are left out: their names are a person's. Each
disk space is counted once: by device number, and on a Mac by APFS container.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from xml.parsers.expat import ExpatError

import psutil

from tasc_compute.codec import Json
from tasc_compute.contracts import HostPlatform, VolumeInfo
from tasc_compute.devices.finding import ProbeContext
from tasc_compute.devices.values import items, member, noisy_json, text
from tasc_compute.limits import MAX_VOLUMES

_LOCAL: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "apfs", "hfs", "vfat"}
    | {"exfat", "ntfs", "ntfs3", "msdos"}
)
_REMOVABLE: Final = ("/media/", "/run/media/", "/Volumes/")
_PSEUDO_MOUNTS: Final = ("/snap/", "/var/lib/docker/", "/System/Volumes/VM", "/System/Volumes/Preboot")
_DEEPEST: Final = 8


class Mount(NamedTuple):
    """A mounted file system: device, mount point, type."""

    device: str
    mountpoint: str
    fstype: str


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk under a mount; ``None`` where it cannot be told."""

    model: str | None
    rotational: bool | None


class Space(Protocol):
    """How large a file system is: device number, total and free bytes, or ``None``."""

    def __call__(self, mountpoint: str, /) -> tuple[int, int, int] | None:
        """Look at one mount."""


def volumes(context: ProbeContext) -> tuple[VolumeInfo, ...]:
    """The local file systems of this host; none where they cannot be listed."""
    try:
        mounts = [Mount(p.device, p.mountpoint, p.fstype) for p in psutil.disk_partitions(all=False)]
    except (OSError, psutil.Error, ValueError):
        return ()
    if context.platform is HostPlatform.DARWIN:
        disks = {m.mountpoint: disk_of_diskutil(_diskutil(context, m.mountpoint)) for m in chosen(mounts)}
    else:
        columns = "NAME,PATH,MODEL,ROTA,SIZE,FSTYPE,MOUNTPOINT,TYPE"
        disks = disks_of_lsblk(noisy_json(context.tools.run("lsblk", "-J", "-b", "-o", columns).output))
    return volumes_of(chosen(mounts), disks, space_of)


def chosen(mounts: Iterable[Mount]) -> list[Mount]:
    """The mounts that are looked at, shortest name first, so that a disk is known by its main mount."""
    found = [
        mount
        for mount in mounts
        if mount.fstype.lower() in _LOCAL and not mount.mountpoint.startswith((*_REMOVABLE, *_PSEUDO_MOUNTS))
    ]
    return sorted(found, key=lambda mount: (len(mount.mountpoint), mount.mountpoint))[:MAX_VOLUMES]


def volumes_of(mounts: Iterable[Mount], disks: dict[str, Disk], space: Space) -> tuple[VolumeInfo, ...]:
    """Mounts with their size and disk, each disk space once."""
    seen: set[object] = set()
    found = []
    for mount in mounts:
        container = re.sub(r"^(/dev/disk\d+)s.*", r"\1", mount.device) if mount.fstype.lower() == "apfs" else None
        measured = None if container in seen else space(mount.mountpoint)
        if measured is None or measured[0] in seen or measured[1] <= 0:
            continue
        seen |= {measured[0]} | ({container} if container else set())
        disk = disks.get(mount.mountpoint, Disk(None, None))
        found.append(
            VolumeInfo(mount.mountpoint, measured[1], measured[2], mount.fstype or None, disk.model, disk.rotational)
        )
    return tuple(found)


def space_of(mountpoint: str, /) -> tuple[int, int, int] | None:
    """Device number, total and free bytes of a mount; free is what an ordinary user may take."""
    try:
        usage = psutil.disk_usage(mountpoint)
        return Path(mountpoint).stat().st_dev, int(usage.total), int(usage.free)
    except OSError:
        return None


def disks_of_lsblk(value: Json) -> dict[str, Disk]:
    """Disk by mount point, from ``lsblk -J``: the model stands at the top of a nest (LUKS, LVM, RAID) only.

    Old versions print ``"rota": "0"``, new ones a list ``mountpoints``.
    """
    found: dict[str, Disk] = {}
    for item in items(member(value, "blockdevices")):
        _walk(item, Disk(None, None), found, 0)
    return found


def _walk(item: dict[str, Json], above: Disk, found: dict[str, Disk], depth: int) -> None:
    rota = item.get("rota")
    rotational = rota in (True, "1") if rota in (True, "1", False, "0") else above.rotational
    disk = Disk(text(item.get("model")) or above.model, rotational)
    places = item.get("mountpoints")
    for place in [item.get("mountpoint"), *(places if isinstance(places, list) else [])]:
        if isinstance(place, str):
            found.setdefault(place, disk)
    if depth < _DEEPEST:
        for child in items(item.get("children")):
            _walk(child, disk, found, depth + 1)


def _diskutil(context: ProbeContext, mountpoint: str) -> str:
    return context.tools.run("diskutil", "info", "-plist", mountpoint).output


def disk_of_diskutil(output: str) -> Disk:
    """The disk that ``diskutil info -plist`` describes."""
    try:
        value = plistlib.loads(output[max(0, output.find("<?xml")) :].encode())
    except (ValueError, ExpatError, plistlib.InvalidFileException, AttributeError):
        return Disk(None, None)
    solid = member(value, "SolidState")
    return Disk(text(member(value, "MediaName")), not solid if isinstance(solid, bool) else None)
