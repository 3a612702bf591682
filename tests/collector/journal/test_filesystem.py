"""Which file systems a journal may lie on, read from the mount table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.journal import FilesystemTrust, OsFileSystem
from tasc_collector.journal.filesystem import FILESYSTEMS, mount_type

TABLE = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /dev/shm rw - tmpfs tmpfs rw
31 22 0:26 / /data rw - nfs4 server:/export rw
32 31 254:1 / /data/local\\040disk rw shared:1 master:2 - xfs /dev/vdb rw
33 22 0:27 / /data rw - ceph server:/ rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/a", "ext4"),
        ("/", "ext4"),
        ("/dev/shm/x", "tmpfs"),
        ("/data/local disk/run", "xfs"),
        ("/data/run", "ceph"),
        ("/database", "ext4"),
    ],
)
def test_the_innermost_and_latest_mount_decides(path: str, kind: str) -> None:
    assert mount_type(TABLE, Path(path)) == kind


def test_an_unreadable_table_leaves_the_type_unknown() -> None:
    assert mount_type("", Path("/")) == "unknown"


@pytest.mark.parametrize(
    ("kind", "trust"),
    [
        ("ext4", FilesystemTrust.TRUSTED),
        ("btrfs", FilesystemTrust.MARKED),
        ("tmpfs", FilesystemTrust.MARKED),
        ("overlay", FilesystemTrust.MARKED),
        ("nfs4", FilesystemTrust.REFUSED),
        ("cifs", FilesystemTrust.REFUSED),
    ],
)
def test_the_table_says_what_a_type_is_trusted_for(kind: str, trust: FilesystemTrust) -> None:
    assert FILESYSTEMS[kind][0] is trust


def test_this_machine_gives_a_verdict_with_a_reason(tmp_path: Path) -> None:
    verdict = OsFileSystem().verdict(tmp_path)
    assert verdict.reason
    assert verdict.trust is not FilesystemTrust.REFUSED
