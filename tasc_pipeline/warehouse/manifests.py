"""What is published: every reader starts here, from signed manifests.

A window's rows come from its own part as long as no compacted part replaced it, else from the compacted part of the
highest generation that covers it. A window that is published again counts by its own part from then on, also where the
bytes are the same: so a compacted part that is damaged or gone is mended by publishing its windows again. Until then it
counts for the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tasc_collector.contracts.part_manifest import CompactedManifest, CoveredWindow, PartManifest
from tasc_collector.contracts.signed import SignedRecord
from tasc_collector.errors import TascError
from tasc_collector.signing import PublicKey
from tasc_collector.wire.records import read_record
from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.parquet import check_bytes, read_groups
from tasc_pipeline.warehouse.publish import MANIFEST, WINDOW_FOLDER, read_retired, window_folder
from tasc_pipeline.warehouse.schemas import TABLES, get_table

COMPACTED = "compacted"
PublicKeys = Mapping[str, PublicKey]
"""Collector keys by key id."""
Watch: TypeAlias = Callable[[str, int], Callable[[int], None]]
"""As ``steps/watch.py`` counts: what is done and how much there is, then how much was done since."""

_NAMED = 8
"""Windows that a message lists."""
_S = TypeVar("_S", bound=SignedRecord)


@dataclass(frozen=True, slots=True)
class Source:
    """One published part, and which of its windows do not count because they were published again since."""

    path: Path
    schema_id: str
    rows: int
    sha256: str
    window_key: str | None
    """Null for a compacted part."""
    without: tuple[str, ...] = ()
    covers: tuple[CoveredWindow, ...] = ()
    """All windows whose rows it holds, in the order of its rows."""


@dataclass(frozen=True, slots=True)
class Published:
    """All manifests of one table."""

    windows: Mapping[str, PartManifest]
    compacted: tuple[tuple[Path, CompactedManifest], ...]
    """With the folder of each, highest generation first."""
    retired: Collection[str] = ()
    """Parts that another one replaced, by path below the table's folder."""

    def sources(self, root: Path, table: str) -> tuple[Source, ...]:
        """The parts that hold the table's rows, every window once; windows first, in order of their key."""
        taken: set[str] = set()
        groups: list[Source] = []
        for folder, manifest in self.compacted:
            covered = {item.window_key: item.sha256 for item in manifest.covers}
            without = tuple(
                sorted(key for key, sha256 in covered.items() if key in taken or not self._replaced(key, sha256))
            )
            taken.update(key for key in covered if key not in without)
            if len(without) < len(covered):
                groups += [
                    Source(
                        folder / part.file, manifest.schema_id, part.rows, part.sha256, None, without, manifest.covers
                    )
                    for part in manifest.parts
                ]
        own = [
            Source(
                window_folder(root, table, key) / part.file,
                manifest.schema_id,
                part.rows,
                part.sha256,
                key,
                covers=(CoveredWindow(window_key=key, sha256=part.sha256, rows=part.rows),),
            )
            for key, manifest in sorted(self.windows.items())
            if key not in taken
            for part in manifest.parts
        ]
        return (*own, *groups)

    def unread(self, root: Path, table: str) -> tuple[Path, ...]:
        """Listed parts of which no row counts: those that a compacted part replaces."""
        read = {source.path for source in self.sources(root, table)}
        listed = [
            window_folder(root, table, key) / part.file for key, item in self.windows.items() for part in item.parts
        ]
        listed += [folder / part.file for folder, group in self.compacted for part in group.parts]
        return tuple(path for path in listed if path not in read)

    def _replaced(self, window_key: str, sha256: str) -> bool:
        """Whether compacted rows of these bytes stand for the window."""
        own = self.windows.get(window_key)
        return own is None or all(
            part.sha256 == sha256 and f"{WINDOW_FOLDER}{window_key}/{part.file}" in self.retired for part in own.parts
        )


def published(root: Path, table: str, *, keys: PublicKeys | None = None) -> Published:
    """Read all manifests of a table.

    Args:
        root: the warehouse folder.
        table: its name.
        keys: collector keys; signatures are verified where given.

    Raises:
        PartCorruptError: a manifest is unreadable, of another table or window, or not signed by a known key.
    """
    folder = root / table
    windows: dict[str, PartManifest] = {}
    for path in _manifests(folder):
        manifest = _read(PartManifest, path, keys)
        if manifest.table != table or path.parent.name != f"{WINDOW_FOLDER}{manifest.window_key}":
            raise _corrupt(path, "the manifest belongs to another folder")
        windows[manifest.window_key] = manifest
    return Published(windows, compacted_groups(root, table, keys=keys), read_retired(folder))


def compacted_groups(
    root: Path, table: str, *, keys: PublicKeys | None = None
) -> tuple[tuple[Path, CompactedManifest], ...]:
    """Manifests of a table's compacted parts with the folder of each, highest generation first."""
    found = [(path.parent, _read(CompactedManifest, path, keys)) for path in _manifests(root / table / COMPACTED)]
    return tuple(sorted(found, key=lambda item: -item[1].generation))


def window_folders(root: Path, table: str) -> tuple[str, ...]:
    """Windows that have a folder of their own in a table, from folder names alone."""
    folder = root / table
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return tuple(sorted(name.removeprefix(WINDOW_FOLDER) for name in names if name.startswith(WINDOW_FOLDER)))


def window_keys(root: Path, table: str) -> tuple[str, ...]:
    """All windows for which the table has been published, compacted or not."""
    covered = {item.window_key for _, group in compacted_groups(root, table) for item in group.covers}
    own = {path.parent.name.removeprefix(WINDOW_FOLDER) for path in _manifests(root / table)}
    return tuple(sorted(own | covered))


def is_published(root: Path, table: str, window_key: str) -> bool:
    """Whether the table has been published for a window, compacted or not."""
    if (window_folder(root, table, window_key) / MANIFEST).exists():
        return True
    return any(item.window_key == window_key for _, group in compacted_groups(root, table) for item in group.covers)


def read_window(root: Path, table: str, window_key: str, *, keys: PublicKeys | None = None) -> pa.Table:
    """The published rows of one table and window, as ``window_batches`` gives them."""
    return pa.concat_tables([get_table(table).empty(), *window_batches(root, table, window_key, keys=keys)])


def window_batches(root: Path, table: str, window_key: str, *, keys: PublicKeys | None = None) -> Iterator[pa.Table]:
    """The published rows of one table and window in the table's order, a row group at a time, every byte verified.

    Raises:
        PartCorruptError: nothing is published for it, or a part is not what its manifest lists.
    """
    kind = get_table(table)
    path = window_folder(root, table, window_key) / MANIFEST
    own = {window_key: _read(PartManifest, path, keys)} if path.exists() else {}
    held = Published(own, compacted_groups(root, table, keys=keys), read_retired(root / table))
    for source in held.sources(root, table):
        if source.window_key == window_key:
            yield from read_groups(source.path, kind, sha256=source.sha256)
            return
        if window_key not in source.without and any(item.window_key == window_key for item in source.covers):
            for rows in read_groups(source.path, kind, sha256=source.sha256, window_key=window_key):
                yield rows.filter(pc.equal(rows.column("window_key"), window_key))
            return
    raise PartCorruptError(
        "nothing is published for this window",
        where=f"{table} of {window_key}",
        way_out="materialize the window's assets first",
    )


def unwatched(what: str, total: int) -> Callable[[int], None]:
    """The ``Watch`` of work that nobody watches."""
    return lambda more: None


def verify_parts(root: Path, *, keys: PublicKeys | None = None, watch: Watch = unwatched) -> int:
    """Check every signature and every byte of every part that counts; returns how many parts were checked.

    Args:
        root: the warehouse folder.
        keys: collector keys; signatures of the manifests are verified where given.
        watch: told the number of tables, then of parts; gives a function for those that were checked since.

    Raises:
        PartCorruptError: names the first part or manifest that is not what was published.
    """
    sources: list[Source] = []
    tell = watch("verifying manifests of tables", len(TABLES))
    for table in TABLES:
        sources += published(root, table, keys=keys).sources(root, table)
        tell(1)
    tell = watch("verifying parts", len(sources))
    for source in sources:
        with naming_windows(source):
            check_bytes(source.path, source.sha256)
        tell(1)
    return len(sources)


@contextlib.contextmanager
def naming_windows(source: Source) -> Iterator[None]:
    """What is wrong with a compacted part says which windows mend it; of a window's own part its folder says so."""
    try:
        yield
    except PartCorruptError as error:
        if source.window_key is not None:
            raise
        held = [item.window_key for item in source.covers if item.window_key not in source.without]
        more = f" and {len(held) - _NAMED} more, which {MANIFEST} beside it lists" if len(held) > _NAMED else ""
        raise PartCorruptError(
            error.what,
            where=error.where,
            way_out="materialize its windows again (tasc collect, tasc assess): " + ", ".join(held[:_NAMED]) + more,
        ) from None


def _manifests(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for child in sorted(folder.iterdir()):
            path = child / MANIFEST
            if path.is_file():
                yield path


def _read(kind: type[_S], path: Path, keys: PublicKeys | None) -> _S:
    try:
        parsed = read_record(kind, path.read_bytes(), where=path.name)
        if keys is not None:
            key = keys.get(parsed.record.signature.authority_key_id)
            if key is None:
                raise _corrupt(path, "the manifest is signed by a key that is not known")
            kind.check_signature(parsed, key, where=path.name)
    except PartCorruptError:
        raise
    except (OSError, TascError):
        raise _corrupt(path, "the manifest cannot be read or its signature does not hold") from None
    return parsed.record


def _corrupt(path: Path, what: str) -> PartCorruptError:
    return PartCorruptError(
        what,
        where=f"{path.parent.parent.name}/{path.parent.name}",
        way_out="materialize the window's assets again: everything here is derived from the journal",
    )
