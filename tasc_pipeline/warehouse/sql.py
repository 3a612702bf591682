"""Run a question or a query of the user's own and show, save or export what it gives."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TextIO

import duckdb
from rich.table import Table as RichTable
from rich.text import Text

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.errors import WarehouseError
from tasc_pipeline.warehouse.views import quoted

SHOWN_ROWS = 200
"""Rows that a terminal table shows; files hold all."""
_BATCH = 10_000
_WINDOW_VARIABLE = "window_key"


@dataclass(frozen=True, slots=True)
class Question:
    """A named query that ships with the product."""

    name: str
    title: str
    query: str


def questions() -> tuple[Question, ...]:
    """All named questions, by name. The first comment line of each file is its title."""
    folder = resources.files("tasc_pipeline.warehouse") / "questions"
    return tuple(
        sorted((_question(item) for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda q: q.name)
    )


def resolve(text: str) -> str:
    """The query for ``text``: SQL as it is, or ``@name`` of a question.

    Raises:
        InputError: there is no question of that name; names those that there are.
    """
    if not text.startswith("@"):
        return text
    known = {question.name: question for question in questions()}
    if text[1:] not in known:
        raise InputError("there is no such question", field=text, way_out=f"ask one of @{', @'.join(known)}")
    return known[text[1:]].query


def ask(session: duckdb.DuckDBPyConnection, text: str, *, window_key: str | None = None) -> duckdb.DuckDBPyConnection:
    """Run a query and leave its result to be fetched.

    Args:
        session: as ``database.connect`` gives it.
        text: SQL, or ``@name``.
        window_key: the one window that a named question is about; all windows where null.

    Raises:
        InputError: there is no query, or it is wrong, in DuckDB's words.
    """
    try:
        if window_key is None:
            session.execute(f"RESET VARIABLE {_WINDOW_VARIABLE}")
        else:
            session.execute(f"SET VARIABLE {_WINDOW_VARIABLE} = $key", {"key": window_key})
        query = resolve(text)
        if not session.extract_statements(query):
            raise InputError(
                "there is no query in it", where="query", way_out="write SQL, or ask a named question: tasc sql --list"
            )
        return session.execute(query)
    except duckdb.Error as error:
        raise InputError(
            str(error).split("\n\n")[0].replace("\n", " "),
            where="query",
            way_out='see the views and their columns: tasc sql "SELECT * FROM duckdb_columns() WHERE NOT internal"',
        ) from None


def terminal_table(result: duckdb.DuckDBPyConnection) -> tuple[RichTable, bool]:
    """The first ``SHOWN_ROWS`` rows as a table for the terminal, and whether there are more."""
    table = RichTable(show_edge=False, pad_edge=False)
    for name, kind in column_types(result):
        table.add_column(Text(name), justify="right" if kind in _NUMERIC else "left", overflow="fold")
    rows = result.fetchmany(SHOWN_ROWS + 1)
    for row in rows[:SHOWN_ROWS]:
        table.add_row(*(Text(shown(value), style="dim" if value is None else "") for value in row))
    return table, len(rows) > SHOWN_ROWS


def write_csv(result: duckdb.DuckDBPyConnection, stream: TextIO) -> int:
    """All rows as CSV with a header; null is an empty field. Returns how many."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([name for name, _ in column_types(result)])
    count = 0
    for row in _rows(result):
        writer.writerow(["" if value is None else _exact(value) for value in row])
        count += 1
    return count


def write_parquet(session: duckdb.DuckDBPyConnection, text: str, path: Path, *, window_key: str | None = None) -> int:
    """All rows of a query as one Parquet file, written beside first and then renamed. Returns how many.

    Raises:
        InputError: the query is wrong or gives no rows that a file could hold.
        WarehouseError: the file cannot be written.
    """
    temporary = path.absolute().with_name(f".tmp-{path.name}")
    query = resolve(text).strip().rstrip(";")
    try:
        temporary.touch()
        copied = ask(
            session,
            f"COPY (\n{query}\n) TO {quoted(temporary.as_posix())} (FORMAT parquet, COMPRESSION zstd)",
            window_key=window_key,
        )
        count = int((copied.fetchone() or (0,))[0])
        temporary.replace(path)
    except OSError:
        raise WarehouseError(
            "the file cannot be written", where=path.name, way_out="choose a folder that exists and is writable"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return count


def column_types(result: duckdb.DuckDBPyConnection) -> tuple[tuple[str, str], ...]:
    """Name and DuckDB type of every column of a result."""
    return tuple((str(item[0]), str(item[1])) for item in result.description or ())


def shown(value: object) -> str:
    """A value for a person: six significant digits, UTC to the second, ``null`` for what is not known."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.1f}" if math.isfinite(value) and abs(value) >= 1e6 else f"{value:.6g}"
    if isinstance(value, datetime):
        return _utc(value).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value)


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as a Markdown table."""
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(shown(value).replace("|", "\\|") for value in row) + " |" for row in rows]
    return "\n".join(lines)


_NUMERIC = frozenset(
    {
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "FLOAT",
        "DOUBLE",
    }
)


def _rows(result: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:  # Any: values of any SQL type
    while rows := result.fetchmany(_BATCH):
        yield from rows


def _exact(value: object) -> str:
    if isinstance(value, datetime):
        return _utc(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return repr(value) if isinstance(value, float) else str(value)


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _question(item: Traversable) -> Question:
    query = item.read_text(encoding="utf-8")
    return Question(item.name.removesuffix(".sql"), query.split("\n", 1)[0].removeprefix("--").strip(), query)
