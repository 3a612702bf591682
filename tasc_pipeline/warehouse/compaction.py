"""Many windows' parts into few large ones, in memory of one row group.

Windows are concatenated in order of their key; each part is sorted already and ``window_key`` leads every sort order,
so the result is sorted and no merge is needed. Old parts are retired and stay 24 hours; what a window publishes
meanwhile or afterwards counts instead of the compacted rows, so the table's lock is held only as in ``publish``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasc_collector.canonical import digest
from tasc_collector.contracts.part_manifest import CompactedManifest, CoveredWindow
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.columns import Table
from tasc_pipeline.warehouse.disk import Disk
from tasc_pipeline.warehouse.manifests import (
    COMPACTED,
    PublicKeys,
    Source,
    Watch,
    compacted_groups,
    published,
    unwatched,
    window_folders,
)
from tasc_pipeline.warehouse.parquet import check_bytes, row_group_rows
from tasc_pipeline.warehouse.publish import (
    MANIFEST,
    WINDOW_FOLDER,
    Clock,
    ManifestSigner,
    locked,
    new_part,
    retire,
    writing,
)
from tasc_pipeline.warehouse.schemas import TABLES, get_table

COMPACT_AFTER = 256
"""Windows with parts of their own after which a table is compacted: opening 256 files costs a query tens of
milliseconds, and a study of hourly windows reaches them every eleventh day."""


def compact_due(
    root: Path,
    *,
    sign: ManifestSigner,
    clock: Clock,
    after: int = COMPACT_AFTER,
    keys: PublicKeys | None = None,
    watch: Watch | None = None,
) -> tuple[str, ...]:
    """Compact every table that has ``after`` or more windows with parts of their own; names those tables.

    Parts of an older schema version stay as they are: views read them beside the new ones. Cheap where nothing is due: it
    counts folders, and reads manifests only where there are as many of them. Call it after publication and before
    ``build_views``. ``watch`` is told the rows of each table, see ``compact``.

    Raises:
        As ``compact``.
    """
    due = []
    for table in TABLES:
        covered = {item.window_key for _, group in compacted_groups(root, table, keys=keys) for item in group.covers}
        own = [key for key in window_folders(root, table) if key not in covered]
        if len(own) >= after:
            held, schema_id = published(root, table, keys=keys), get_table(table).schema_id
            own = [
                item.window_key for item in held.sources(root, table) if item.window_key and item.schema_id == schema_id
            ]
        if len(own) >= after:
            compact(root, table, sign=sign, clock=clock, window_keys=own, keys=keys, watch=watch)
            due.append(table)
    return tuple(due)


def compact(
    root: Path,
    table: str,
    *,
    sign: ManifestSigner,
    clock: Clock,
    window_keys: Sequence[str] | None = None,
    keys: PublicKeys | None = None,
    disk: Disk | None = None,
    watch: Watch | None = None,
) -> CompactedManifest:
    """Write one part with the rows of many windows and retire their own. Views see it after ``build_views``.

    Args:
        root: the warehouse folder.
        table: name of the table.
        sign: signs the manifest.
        clock: tells when the old parts were retired.
        window_keys: which windows; all that have parts of their own where null.
        keys: collector keys; signatures of the manifests read are verified where given.
        disk: file operations.
        watch: told what is compacted and how many rows there are; gives a function for the rows done since.

    Raises:
        InputError: fewer than two windows have parts of their own, or one of another schema version.
        PartCorruptError: a part is not what its manifest lists; nothing was changed.
        WarehouseError: the disk refused; nothing was changed.
    """
    kind, disk = get_table(table), disk or Disk()
    with writing(f"{table} compaction"):
        with locked(root / table):
            held = published(root, table, keys=keys)
        wanted = None if window_keys is None else set(window_keys)
        sources = [
            source
            for source in held.sources(root, table)
            if source.window_key is not None and (wanted is None or source.window_key in wanted)
        ]
        if len({source.window_key for source in sources}) < 2:
            raise InputError(
                "fewer than two windows to compact", where=table, way_out="compact after more windows are published"
            )
        if any(source.schema_id != kind.schema_id for source in sources):
            raise InputError(
                "a window's part is of an older schema version",
                where=table,
                way_out="materialize that window's assets again first",
            )
        covers = tuple(
            CoveredWindow(window_key=source.window_key or "", sha256=source.sha256, rows=source.rows)
            for source in sources
        )
        group = digest("tasc/compacted-group/v1", [item.to_json() for item in covers])[7:15]
        folder = root / table / COMPACTED / group
        tell = (watch or unwatched)(f"compacting {table}, rows", sum(source.rows for source in sources))
        with new_part(root / table, f"{COMPACTED}/{group}", kind, _rows(sources, kind, tell), disk=disk) as part:
            others = compacted_groups(root, table, keys=keys)
            manifest = CompactedManifest.sign_with(
                sign.key,
                sign.key_id,
                table=table,
                schema_id=kind.schema_id,
                covers=covers,
                parts=(part,),
                generation=1 + max((other.generation for _, other in others), default=0),
            )
            disk.write(folder / MANIFEST, manifest.canonical())
            now = format_timestamp(clock())
            replaced = {f"{WINDOW_FOLDER}{source.window_key}/{source.path.name}": now for source in sources}
            retire(root / table, replaced, disk)
    return manifest


def _rows(sources: Sequence[Source], table: Table, tell: Callable[[int], None]) -> Iterator[pa.Table]:
    for source in sources:
        check_bytes(source.path, source.sha256)
        with pq.ParquetFile(source.path, page_checksum_verification=True) as part:
            for batch in part.iter_batches(batch_size=row_group_rows(table)):
                yield pa.Table.from_batches([batch]).cast(table.schema)
                tell(batch.num_rows)
