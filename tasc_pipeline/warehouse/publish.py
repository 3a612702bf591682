"""Publication of one table of one window: old readers keep what they see, new ones see all of the new or none of it.

Order; the process may end between any two steps. The lock of the table is held in steps 1 and 3 to 5, which take
milliseconds, and not in step 2, which takes as long as the rows take to be made:

1. Remove temporaries that an earlier end left in the folder; open one with a name of its own and lock that file.
2. Write the part to it; fsync it. Its lock, which ends with its writer, says that it is no leftover.
3. Rename it to ``part-<first 8 hex of its SHA-256>.parquet``; fsync the folder.
4. Note every other part of the folder as retired, with the time. Nothing is deleted here.
5. Write the signed manifest beside, fsync, rename over the old one, fsync the folder. *Now* it is published.

Of two that publish the same table and window at once, what the later one to end wrote counts.

Readers follow manifests, never globs, so steps 1 to 4 change nothing that anyone sees. Views are made from manifests
afterwards (``database.build_views``), which then deletes parts that were retired more than 24 hours ago.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TypeAlias

import orjson
import pyarrow as pa

from tasc_collector.contracts.part_manifest import Part, PartManifest
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse.columns import Table
from tasc_pipeline.warehouse.disk import Disk
from tasc_pipeline.warehouse.errors import WarehouseError
from tasc_pipeline.warehouse.parquet import following, is_all, sorted_rows, write_parquet
from tasc_pipeline.warehouse.schemas import get_table

MANIFEST = "manifest.json"
RETIRED = "retired.json"
WINDOW_FOLDER = "window_key="
Clock = Callable[[], datetime]
"""The wall clock: an aware instant."""

Rows: TypeAlias = pa.Table | Iterable[pa.Table]
"""An Arrow table of one warehouse table's columns in any order; or several that follow each other in the table's order,
which are taken one at a time."""


@dataclass(frozen=True, slots=True)
class ManifestSigner:
    """The collector key that signs manifests."""

    key: SigningKey
    key_id: str


def window_folder(root: Path, table: str, window_key: str) -> Path:
    """Folder of one table's parts of one window."""
    return root / table / f"{WINDOW_FOLDER}{window_key}"


def publish(
    root: Path,
    table: str,
    window_key: str,
    rows: Rows,
    *,
    sign: ManifestSigner,
    clock: Clock,
    source_digest: str | None = None,
    disk: Disk | None = None,
) -> Part:
    """Publish all rows of one table and window; replaces what was published for it before.

    The same rows give the same bytes, so publishing again changes nothing but the manifest's signature time of writing.

    Args:
        root: the warehouse folder.
        table: name of the table.
        window_key: partition; every row must hold it.
        rows: in the table's schema.
        sign: signs the manifest.
        clock: tells when the replaced part was retired.
        source_digest: what the rows were derived from.
        disk: file operations.

    Raises:
        InputError: unknown table, other columns, a row of another window, or tables that do not follow each other.
        WarehouseError: the disk refused; what was published before still stands.
    """
    kind, disk = get_table(table), disk or Disk()
    if isinstance(rows, pa.Table):
        rows = (sorted_rows(kind, _of_window(rows, table, window_key)),)
    else:
        rows = following(kind, (_of_window(batch, table, window_key) for batch in rows))
    folder = window_folder(root, table, window_key)
    with (
        writing(f"{table} of {window_key}"),
        new_part(root / table, folder.name, kind, rows, disk=disk) as part,
    ):
        _retire_others(root / table, folder, part.file, clock(), disk)
        manifest = PartManifest.sign_with(
            sign.key,
            sign.key_id,
            table=table,
            schema_id=kind.schema_id,
            window_key=window_key,
            source_digest=source_digest,
            parts=(part,),
        )
        disk.write(folder / MANIFEST, manifest.canonical())
    return part


@contextlib.contextmanager
def new_part(
    table_folder: Path, below: str, table: Table, batches: Iterable[pa.Table], *, disk: Disk
) -> Iterator[Part]:
    """Steps 1 to 3; what the caller does with the part happens under the table's lock.

    Args:
        table_folder: the table's folder, which holds the lock.
        below: folder of the part in it.
        table: whose rows they are.
        batches: the rows, taken while no lock is held.
        disk: file operations.
    """
    folder = table_folder / below
    disk.make_folder(table_folder)
    with contextlib.ExitStack() as held:
        with locked(table_folder):
            disk.make_folder(folder)  # under the lock: an empty one may be removed
            _remove_leftovers(folder, disk)
            names = (folder / f".tmp-part-{number}" for number in count(1))
            temporary = next(name for name in names if not name.exists())
            file = held.enter_context(disk.create(temporary))
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            written = write_parquet(temporary, table, batches)
            disk.sync(file)
        except BaseException:
            disk.remove(temporary)  # while its name is still ours
            raise
        part = Part(
            file=f"part-{written.sha256[:8]}.parquet", rows=written.rows, bytes=written.bytes, sha256=written.sha256
        )
        with locked(table_folder):
            disk.replace(temporary, folder / part.file)
            disk.sync_path(folder)
            yield part


def _remove_leftovers(folder: Path, disk: Disk) -> None:
    """Remove temporaries whose writer is gone; one that is alive holds the lock of its file."""
    for left in folder.glob(".tmp-*"):
        try:
            with left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                disk.remove(left)
        except (BlockingIOError, FileNotFoundError):
            continue


def read_retired(folder: Path) -> dict[str, str]:
    """Parts of a table that no longer count, by path below the table's folder, with the time they were replaced."""
    try:
        value = orjson.loads((folder / RETIRED).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}  # only delays deletion: what is not listed is listed again when its window is published again
    return {str(name): str(at) for name, at in value.items()} if isinstance(value, dict) else {}


def retire(table_folder: Path, names: Mapping[str, str], disk: Disk) -> None:
    """Add parts to the retired ones; those that are in the list keep their time."""
    before = read_retired(table_folder)
    after = dict(names) | before
    if after != before:
        disk.write(table_folder / RETIRED, orjson.dumps(after, option=orjson.OPT_SORT_KEYS))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a table's publication lock; waits, because nobody holds it for more than milliseconds."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(where: str) -> Iterator[None]:
    """Turn the disk's refusal into a ``WarehouseError`` that says what still stands."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "no reason given"
        raise WarehouseError(
            f"the disk refused ({reason}); what was published before still stands",
            where=where,
            way_out="free space or make the folder writable, then materialize the window's assets again",
        ) from None


def _of_window(rows: pa.Table, table: str, window_key: str) -> pa.Table:
    if rows.num_rows and not is_all(rows.column("window_key"), window_key):
        raise InputError(
            "a row belongs to another window", where=table, field="window_key", way_out="publish one window at a time"
        )
    return rows


def _retire_others(table_folder: Path, folder: Path, current: str, now: datetime, disk: Disk) -> None:
    others = {
        f"{folder.name}/{path.name}": format_timestamp(now)
        for path in folder.glob("part-*.parquet")
        if path.name != current
    }
    held = read_retired(table_folder)
    back = f"{folder.name}/{current}"
    if back in held:
        del held[back]
        disk.write(table_folder / RETIRED, orjson.dumps(held, option=orjson.OPT_SORT_KEYS))
    retire(table_folder, others, disk)
