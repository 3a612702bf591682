"""The few operations by which the warehouse changes a disk, so that tests can end the process between any two."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


class Disk:
    """Durable steps on a POSIX file system."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, owner-only."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def create(self, path: Path) -> BinaryIO:
        """Open a new file for writing; an older temporary of that name is replaced."""
        path.unlink(missing_ok=True)
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def sync(self, file: BinaryIO) -> None:
        """Flush and fsync an open file."""
        file.flush()
        os.fsync(file.fileno())

    def sync_path(self, path: Path) -> None:
        """Fsync a file or folder by its path."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, source: Path, target: Path) -> None:
        """Rename over."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Delete a file that may be gone already."""
        path.unlink(missing_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """Write a small file beside, fsync, rename over, fsync the folder."""
        temporary = path.with_name(f".tmp-{path.name}")
        with self.create(temporary) as file:
            file.write(data)
            self.sync(file)
        self.replace(temporary, path)
        self.sync_path(path.parent)
