"""Small files of the state folder: written beside, synced, renamed; never half a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tasc_collector.errors import InputError


def write_file(path: Path, data: bytes, *, mode: int = 0o600, replace: bool = False) -> None:
    """Write ``data`` durably under its final name.

    Args:
        path: the final name; its folder must exist.
        data: the whole content.
        mode: permission bits.
        replace: whether an existing file may be replaced; otherwise an identical one is left and another is refused.

    Raises:
        InputError: the name is taken by other content, or the folder cannot be written.
    """
    if not replace and _is_there(path, data):
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, mode)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as handle:
                handle.write(data)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(
            f"the file cannot be written ({os.strerror(error.errno or 0).lower()})",
            where=str(path),
            way_out="make the folder writable or free some space, then run the command again",
        ) from None


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write several files by the rules of ``write_file``; none where one of their names is taken by other content.

    Args:
        files: whole contents by final name; their folders must exist.

    Raises:
        InputError: a name is taken by other content, or a folder cannot be written.
    """
    missing = {path: data for path, data in files.items() if not _is_there(path, data)}
    for path, data in missing.items():
        write_file(path, data)


def _is_there(path: Path, data: bytes) -> bool:
    if not path.exists():
        return False
    if path.read_bytes() == data:
        return True
    raise InputError(
        "a different file is already there",
        where=str(path),
        way_out="records are append-only; keep it, or remove it by hand first",
    )


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a private folder and its parents; an existing one is left.

    Raises:
        InputError: a file is in its place, or it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError("a file is in the place of this folder", where=str(folder), way_out="move it away") from None
    except OSError as error:
        raise InputError(
            f"the folder cannot be made ({os.strerror(error.errno or 0).lower()})",
            where=str(folder),
            way_out="make its parent writable, or set TASC_HOME",
        ) from None
