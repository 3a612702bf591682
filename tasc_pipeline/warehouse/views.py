"""The text of ``tasc.sql``: one view per table over an explicit list of files, the derived views, all with comments.

Paths are relative to the state folder, so that ``duckdb -init tasc.sql`` works there and a copied folder works
anywhere. A part of an older schema version is read, columns that it lacks are null; one of a newer version is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.columns import Column, Kind, Table
from tasc_pipeline.warehouse.derived_views import COVERAGE, LINEAGE, PAIRED_DELTAS, DerivedView, windows_current
from tasc_pipeline.warehouse.manifests import Source
from tasc_pipeline.warehouse.schemas import TABLES, WINDOWS

WAREHOUSE = "warehouse"
"""Folder of the parts inside the state folder."""
SCHEMA_PART = "schema.parquet"
"""A part without rows in each table's folder; it keeps the view of an empty table readable."""
_VERSION = re.compile(r"^(.*-v)(\d+)$")

DERIVED: tuple[DerivedView, ...] = (
    PAIRED_DELTAS,
    COVERAGE,
    windows_current(tuple((column.name, column.comment) for column in WINDOWS.columns)),
    LINEAGE,
)
VIEWS: tuple[str, ...] = (*TABLES, *(view.name for view in DERIVED))
"""Every view, in the order in which they are made."""


def view_columns(name: str) -> tuple[tuple[str, str], ...]:
    """Name and comment of every column of a view; raises ``KeyError`` where there is no such view."""
    if name in TABLES:
        return tuple((column.name, column.comment) for column in TABLES[name].columns)
    return {view.name: view.columns for view in DERIVED}[name]


def sql_text(sources: Mapping[str, Sequence[Source]], home: Path) -> str:
    """The whole of ``tasc.sql``.

    Args:
        sources: the parts of each table that count.
        home: the state folder that paths are relative to.

    Raises:
        InputError: a part is of a newer schema version than this program knows.
    """
    statements = [
        "-- Views over the Parquet parts of this folder. Open here: duckdb -init tasc.sql",
        "-- Written by tasc on every publication; files are listed one by one, so a half-written part is never seen.",
        "SET TimeZone = 'UTC';",
    ]
    for table in TABLES.values():
        statements.append(_view(table.name, _table_query(table, sources.get(table.name, ()), home)))
        statements.append(_comments(table.name, table.description, view_columns(table.name)))
    for view in DERIVED:
        statements.append(_view(view.name, view.query))
        statements.append(_comments(view.name, view.description, view.columns))
    return "\n\n".join(statements) + "\n"


def quoted(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _view(name: str, query: str) -> str:
    return f"CREATE OR REPLACE VIEW {name} AS\n{query};"


def _comments(name: str, description: str, columns: Sequence[tuple[str, str]]) -> str:
    lines = [f"COMMENT ON VIEW {name} IS {quoted(description)};"]
    lines += [f"COMMENT ON COLUMN {name}.{column} IS {quoted(comment)};" for column, comment in columns]
    return "\n".join(lines)


def _table_query(table: Table, sources: Sequence[Source], home: Path) -> str:
    current, older = _by_version(table, sources)
    branches: list[str] = []
    if not current:
        branches.append(_read([f"{WAREHOUSE}/{table.name}/{SCHEMA_PART}"]))
    for group in (current, older):
        windows = [_relative(source, home) for source in group if source.window_key is not None]
        if windows:
            by_name = ", union_by_name = true" if group is older else ""
            branches.append(
                _read(windows, f", hive_partitioning = true, hive_types = {{'window_key': VARCHAR}}{by_name}")
            )
        for without in sorted({source.without for source in group if source.window_key is None}):
            files = [
                _relative(source, home) for source in group if source.window_key is None and source.without == without
            ]
            branches.append(_read(files) + _except(without))
    columns = ",\n    ".join(_shown(column) for column in table.columns)
    joined = "\n    UNION ALL BY NAME\n    ".join(branches)
    return f"SELECT\n    {columns}\nFROM (\n    {joined}\n)"


def _by_version(table: Table, sources: Sequence[Source]) -> tuple[list[Source], list[Source]]:
    stem, ours = _version(table.schema_id)
    current: list[Source] = []
    older: list[Source] = []
    for source in sources:
        name, version = _version(source.schema_id)
        if name != stem or version > ours:
            raise InputError(
                f"the part is of schema {source.schema_id}, this program knows {table.schema_id}",
                where=f"{table.name}/{source.path.parent.name}",
                way_out="upgrade tasc, or materialize the window's assets again with this version",
            )
        (current if version == ours else older).append(source)
    return current, older


def _version(schema_id: str) -> tuple[str, int]:
    found = _VERSION.match(schema_id)
    return (found[1], int(found[2])) if found else (schema_id, 0)


def _read(files: Sequence[str], options: str = ", hive_partitioning = false") -> str:
    listed = ",\n        ".join(quoted(name) for name in files)
    return f"SELECT * FROM read_parquet([\n        {listed}\n    ]{options})"  # noqa: S608 - every name is quoted by us


def _except(without: Sequence[str]) -> str:
    return f" WHERE window_key NOT IN ({', '.join(quoted(key) for key in without)})" if without else ""


def _relative(source: Source, home: Path) -> str:
    return source.path.relative_to(home).as_posix()


def _shown(column: Column) -> str:
    if column.kind is not Kind.IDENTITY:
        return column.name
    prefix = f"{quoted(column.prefix)} || " if column.prefix else ""
    return f"{prefix}lower(hex({column.name})) AS {column.name}"
