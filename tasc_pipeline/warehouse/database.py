"""The two files that analysts open: ``tasc.sql`` and ``warehouse.duckdb``. Both hold views only.

Both are built beside the old ones and renamed over them; nothing is ever opened read-write in place. So an open session
keeps the old file and keeps answering from parts that stay for 24 hours after they were replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import duckdb
import orjson

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.disk import Disk
from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.manifests import PublicKeys, Published, Source, naming_windows, published
from tasc_pipeline.warehouse.parquet import has_columns_of, write_parquet
from tasc_pipeline.warehouse.publish import MANIFEST, RETIRED, WINDOW_FOLDER, Clock, locked, read_retired, writing
from tasc_pipeline.warehouse.schemas import TABLES
from tasc_pipeline.warehouse.views import SCHEMA_PART, WAREHOUSE, sql_text

Session: TypeAlias = duckdb.DuckDBPyConnection
"""A DuckDB session on the views."""

SQL_FILE = "tasc.sql"
DATABASE_FILE = "warehouse.duckdb"
KEEP_RETIRED = timedelta(hours=24)
"""How long a replaced part stays for sessions that were opened before."""
STORAGE_VERSION = "v1.0.0"
"""Oldest storage format of DuckDB, so that any client of the last years opens the file."""


def connect(home: str | Path = ".tasc") -> duckdb.DuckDBPyConnection:
    """A DuckDB session with all views of a state folder; it holds no lock and sees what was published until now.

    Args:
        home: the state folder.

    Raises:
        InputError: the folder has no warehouse.
    """
    root = Path(home).absolute()
    try:
        text = (root / SQL_FILE).read_text()
    except OSError:
        raise InputError(
            "there is no warehouse here",
            where=str(home),
            way_out="name the state folder with TASC_HOME, or make one: tasc init",
        ) from None
    session = duckdb.connect(":memory:")
    try:
        session.execute(f"SET file_search_path = '{_search_path(root)}'")
        session.execute(text)
    except duckdb.Error:
        session.close()
        raise PartCorruptError(
            "a view cannot be opened: a part is missing or damaged",
            where=SQL_FILE,
            way_out="find it: tasc sql --verify; then materialize that window's assets again",
        ) from None
    return session


def build_views(home: Path, *, clock: Clock, keys: PublicKeys | None = None, disk: Disk | None = None) -> None:
    """Make ``tasc.sql`` and ``warehouse.duckdb`` from the manifests; then delete what nobody reads any more.

    Args:
        home: the state folder; an empty or new one gets empty views.
        clock: decides which replaced parts are older than ``KEEP_RETIRED``.
        keys: collector keys; signatures of manifests are verified where given.
        disk: file operations.

    Raises:
        PartCorruptError: a manifest or part is missing or damaged; the old views still stand.
        WarehouseError: the disk refused; the old views still stand.
    """
    home, disk = home.absolute(), disk or Disk()
    root = home / WAREHOUSE
    with writing(SQL_FILE):
        for table in TABLES.values():
            disk.make_folder(root / table.name)
            with locked(root / table.name):
                if not has_columns_of(root / table.name / SCHEMA_PART, table):
                    temporary = root / table.name / f".tmp-{SCHEMA_PART}"
                    with disk.create(temporary) as file:
                        write_parquet(temporary, table, [table.empty()])
                        disk.sync(file)
                    disk.replace(temporary, root / table.name / SCHEMA_PART)
        with locked(root):
            held = {name: published(root, name, keys=keys) for name in TABLES}
            sources = {name: item.sources(root, name) for name, item in held.items()}
            _check_present([source for items in sources.values() for source in items])
            text = sql_text(sources, home)
            _build_database(home, text, disk)
            disk.write(home / SQL_FILE, text.encode())
        for name, item in held.items():
            with locked(root / name):
                _sweep(root / name, item, sources[name], clock(), disk)


def _build_database(home: Path, text: str, disk: Disk) -> None:
    temporary = home / f".tmp-{DATABASE_FILE}"
    disk.remove(temporary)
    disk.remove(temporary.with_name(f"{temporary.name}.wal"))
    try:
        with duckdb.connect(":memory:") as session:
            session.execute(f"SET file_search_path = '{_search_path(home)}'")
            session.execute(f"ATTACH '{temporary.as_posix()}' AS built (STORAGE_VERSION '{STORAGE_VERSION}')")
            session.execute("USE built")
            session.begin()  # a few hundred statements, each of which would else be made durable on its own
            session.execute(text)
            session.commit()
            session.execute("USE memory")
            session.execute("DETACH built")
    except duckdb.Error:
        raise PartCorruptError(
            "a view cannot be made: a part is damaged",
            where=DATABASE_FILE,
            way_out="find it: tasc sql --verify; then materialize that window's assets again",
        ) from None
    temporary.chmod(0o600)
    disk.sync_path(temporary)
    disk.replace(temporary, home / DATABASE_FILE)
    disk.sync_path(home)


def _check_present(sources: Sequence[Source]) -> None:
    for source in sources:
        if not source.path.is_file():
            with naming_windows(source):
                raise PartCorruptError(
                    "a published part is missing",
                    where=f"{source.path.parent.parent.name}/{source.path.parent.name}/{source.path.name}",
                    way_out="materialize the window's assets again: the part is derived from the journal",
                )


def _sweep(table_folder: Path, held: Published, sources: Sequence[Source], now: datetime, disk: Disk) -> None:
    """Delete parts retired more than ``KEEP_RETIRED`` ago that the views just made do not read."""
    retired = read_retired(table_folder)
    due = [name for name, at in retired.items() if at <= format_timestamp(now - KEEP_RETIRED)]
    if not due:
        return
    read = {source.path.relative_to(table_folder).as_posix() for source in sources}
    for name in due:
        if name not in read:
            path = table_folder / name
            own = held.windows.get(path.parent.name.removeprefix(WINDOW_FOLDER))
            if own is None or any(part.file == path.name for part in own.parts):
                disk.remove(path.parent / MANIFEST)  # first: a manifest never names a part that is gone
            disk.remove(path)
            if not any(path.parent.glob("*")):
                path.parent.rmdir()
        del retired[name]
    disk.write(table_folder / RETIRED, orjson.dumps(retired, option=orjson.OPT_SORT_KEYS))


def _search_path(home: Path) -> str:
    text = home.as_posix()
    if "," in text or "'" in text:
        raise InputError(
            "DuckDB cannot search a folder with a comma or an apostrophe in its path",
            where=home.name,
            way_out="move the state folder to a path without them",
        )
    return text
