"""Many small parts into few large ones, so that a query opens few files whatever the number of windows.

To open a part costs a query about a millisecond, as much as reading some 20,000 rows of it. Rules:

1. A part of ``large_rows`` or more is never written again: opening it is a small share of reading it.
2. A smaller part is of tier n if it holds at least 4 ** n windows, tier 0 being a window's own. When a tier has
   ``FAN_IN`` parts, they are merged in order of their windows, until the merged part is large; all of them together are of
   a higher tier. So of N windows there are at most 3 small parts in each of log4(N) + 1 tiers, and a row is written again
   at most that often.
3. One call merges tables in turn, each until nothing is due or ``large_rows`` are written again: less than three times as
   many, whatever waits. A later call goes on.
4. Parts of an older schema version stay as they are; views read them beside the others.
5. A table is compacted by one process at a time, and by one that comes meanwhile not at all. Otherwise rows that were
   read before a window was published again could be merged after its new ones.
6. The merged part is published like any other: bytes, name, manifest. What it replaces is retired then and stays 24
   hours. A process that ends between leaves both; the windows' own parts count, and the next merge writes it again.
7. What a window publishes meanwhile or afterwards counts instead of its merged rows.

Every source is sorted and ``window_key`` leads every sort order, so rows are taken window by window, in memory of a few row
groups. The table's lock is held only as in ``publish``.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasc_collector.canonical import digest
from tasc_collector.contracts.part_manifest import CompactedManifest
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.columns import Table
from tasc_pipeline.warehouse.disk import Disk
from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.manifests import COMPACTED, PublicKeys, Published, Source, Watch, published, unwatched
from tasc_pipeline.warehouse.parquet import check_bytes, is_all, row_group_rows
from tasc_pipeline.warehouse.publish import (
    MANIFEST,
    WINDOW_FOLDER,
    Clock,
    ManifestSigner,
    locked,
    new_part,
    read_retired,
    retire,
    writing,
)
from tasc_pipeline.warehouse.schemas import TABLES, get_table

FAN_IN = 4
"""Parts of one tier that are merged: a warehouse of 20,000 windows has at most 24 small parts in a table. With 8 it could
have 35 and would write each row two thirds as often."""
LARGE_GROUPS = 4
"""Full row groups from which a part is large."""


def large_rows(table: Table) -> int:
    """Rows from which a part of a table is never written again."""
    return LARGE_GROUPS * row_group_rows(table)


def due(parts: Sequence[Source], *, large: int) -> tuple[Source, ...]:
    """The parts that are to be merged next, in order of their windows (rules 1 and 2); none where no tier is full.

    Args:
        parts: all that hold rows which count, of one schema version.
        large: rows from which a part is large.
    """
    tiers: dict[int, list[Source]] = {}
    for part in sorted((part for part in parts if part.rows < large), key=lambda part: part.covers[0].window_key):
        tiers.setdefault(_tier(len(part.covers) - len(part.without)), []).append(part)
    full = min((tier for tier, held in tiers.items() if len(held) >= FAN_IN), default=None)
    if full is None:
        return ()
    taken: list[Source] = []
    for part in tiers[full]:
        taken.append(part)
        if sum(each.rows for each in taken) >= large:
            break
    return tuple(taken)


def _tier(windows: int) -> int:
    return 0 if windows < FAN_IN else 1 + _tier(windows // FAN_IN)


def compact_due(
    root: Path,
    *,
    sign: ManifestSigner,
    clock: Clock,
    keys: PublicKeys | None = None,
    watch: Watch | None = None,
) -> tuple[str, ...]:
    """Merge what is due in every table, as much as one call does (rules 2 and 3); names the tables that it changed.

    Where fewer than ``FAN_IN`` parts came since, names of files tell and nothing is read. Call it after publication and
    before ``build_views``.

    Args:
        root: the warehouse folder.
        sign: signs the manifests.
        clock: tells when the old parts were retired.
        keys: collector keys; signatures of the manifests read are verified where given.
        watch: told what is compacted and how many rows there are; gives a function for the rows done since.

    Raises:
        PartCorruptError: a part is not what its manifest lists; what was published still stands.
        WarehouseError: the disk refused; what was published still stands.
    """
    changed = []
    for table in TABLES:
        if _own_parts(root / table) < FAN_IN:
            continue
        with _turn(root, table) as ours:
            written = 0
            while ours and written < large_rows(get_table(table)):
                held, parts = _current(root, table, keys)
                parts = due(parts, large=large_rows(get_table(table)))
                if not parts:
                    break
                changed.append(table)
                merged = _merge(root, table, held, parts, sign=sign, clock=clock, disk=Disk(), watch=watch or unwatched)
                written += sum(part.rows for part in merged.parts)
    return tuple(dict.fromkeys(changed))


def compact(
    root: Path,
    table: str,
    *,
    sign: ManifestSigner,
    clock: Clock,
    keys: PublicKeys | None = None,
    disk: Disk | None = None,
    watch: Watch | None = None,
) -> CompactedManifest:
    """Merge all parts of a table into one, large ones too. Views see it after ``build_views``.

    Args:
        root: the warehouse folder.
        table: name of the table.
        sign: signs the manifest.
        clock: tells when the old parts were retired.
        keys: as for ``compact_due``.
        disk: file operations.
        watch: as for ``compact_due``.

    Raises:
        InputError: there are fewer than two parts, or another process compacts the table.
        PartCorruptError: a part is not what its manifest lists; nothing was changed.
        WarehouseError: the disk refused; nothing was changed.
    """
    with _turn(root, table) as ours:
        if not ours:
            raise InputError("another process compacts the table", where=table, way_out="wait until it has ended")
        held, parts = _current(root, table, keys)
        if len(parts) < 2:
            raise InputError(
                "fewer than two parts to compact", where=table, way_out="compact after more windows are published"
            )
        return _merge(root, table, held, parts, sign=sign, clock=clock, disk=disk or Disk(), watch=watch or unwatched)


def _own_parts(table_folder: Path) -> int:
    """How many windows' own parts no other part replaced, by names alone."""
    retired = read_retired(table_folder)
    names = (f"{path.parent.name}/{path.name}" for path in table_folder.glob(f"{WINDOW_FOLDER}*/part-*.parquet"))
    return sum(name not in retired for name in names)


@contextlib.contextmanager
def _turn(root: Path, table: str) -> Iterator[bool]:
    """Whether this process may compact the table (rule 5); it alone may until the end, and its disk's refusal is told."""
    with writing(f"{table} compaction"), (root / table / ".compacting").open("wb") as file:
        yield _taken(file.fileno())


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _current(root: Path, table: str, keys: PublicKeys | None) -> tuple[Published, tuple[Source, ...]]:
    """What is published, and its parts of the current schema version."""
    with locked(root / table):
        held = published(root, table, keys=keys)
    schema_id = get_table(table).schema_id
    return held, tuple(part for part in held.sources(root, table) if part.schema_id == schema_id)


def _merge(
    root: Path,
    table: str,
    held: Published,
    parts: Sequence[Source],
    *,
    sign: ManifestSigner,
    clock: Clock,
    disk: Disk,
    watch: Watch,
) -> CompactedManifest:
    kind = get_table(table)
    windows = sorted(
        (window for part in parts for window in part.covers if window.window_key not in part.without),
        key=lambda window: window.window_key,
    )
    tell = watch(f"compacting {table}, rows", sum(window.rows for window in windows))
    group = digest("tasc/compacted-group/v1", [window.to_json() for window in windows])[7:15]
    folder = root / table / COMPACTED / group
    with new_part(root / table, f"{COMPACTED}/{group}", kind, _rows(parts, kind, tell), disk=disk) as part:
        manifest = CompactedManifest.sign_with(
            sign.key,
            sign.key_id,
            table=table,
            schema_id=kind.schema_id,
            covers=tuple(windows),
            parts=(part,),
            generation=1 + max((other.generation for _, other in held.compacted), default=0),
        )
        disk.write(folder / MANIFEST, manifest.canonical())
        now = format_timestamp(clock())
        merged = (part.path.relative_to(root / table).as_posix() for part in parts)
        after = Published(held.windows, ((folder, manifest), *held.compacted), {*held.retired, *merged})
        replaced = [path.relative_to(root / table).as_posix() for path in after.unread(root, table)]
        retire(root / table, dict.fromkeys(replaced, now), disk)
    return manifest


def _rows(parts: Sequence[Source], table: Table, tell: Callable[[int], None]) -> Iterator[pa.Table]:
    """Rows of every window that counts, in order of the windows; each part is open from its first window to its last."""
    open_parts: dict[Path, _Reader] = {}
    in_order = sorted(((window, part) for part in parts for window in part.covers), key=lambda each: each[0].window_key)
    for window, part in in_order:
        if part.path not in open_parts:
            open_parts[part.path] = _Reader(part, table)
        for rows in open_parts[part.path].take(window.rows):
            if not is_all(rows.column("window_key"), window.window_key):
                raise _corrupt(part.path)
            if window.window_key not in part.without:
                yield rows
                tell(rows.num_rows)
        if window is part.covers[-1]:
            open_parts.pop(part.path).close()


class _Reader:
    """One part, read once from its first row to its last, with its bytes and checksums verified."""

    def __init__(self, part: Source, table: Table) -> None:
        check_bytes(part.path, part.sha256)
        self._path = part.path
        self._batches = _batches(part.path, table)
        self._held = table.empty()

    def take(self, rows: int) -> Iterator[pa.Table]:
        """The next rows, in pieces of at most one row group."""
        while rows:
            if not self._held.num_rows:
                self._held = next(self._batches, self._held)
                if not self._held.num_rows:
                    raise _corrupt(self._path)
            piece = self._held.slice(0, rows)
            self._held = self._held.slice(piece.num_rows)
            rows -= piece.num_rows
            yield piece

    def close(self) -> None:
        """Close the file."""
        self._batches.close()


def _batches(path: Path, table: Table) -> Generator[pa.Table, None, None]:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        if not file.schema_arrow.equals(table.schema):
            raise _corrupt(path)
        for batch in file.iter_batches(batch_size=row_group_rows(table)):
            yield pa.Table.from_batches([batch]).replace_schema_metadata(table.schema.metadata)


def _corrupt(path: Path) -> PartCorruptError:
    return PartCorruptError(
        "the part does not hold the rows that its manifest lists",
        where=f"{path.parent.parent.name}/{path.parent.name}/{path.name}",
        way_out="materialize the windows' assets again: everything here is derived from the journal",
    )
