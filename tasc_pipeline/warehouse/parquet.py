"""How a part is written and read: zstd, page checksums, few large row groups, the same bytes for the same rows.

Without page checksums pyarrow read back wrong data from 223 of 400 single bit flips; with them from none. So every page
has one, every read of ours verifies them, and the manifest holds the SHA-256 of the whole file.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.columns import Kind, Table
from tasc_pipeline.warehouse.errors import PartCorruptError

ROW_GROUP_ROWS = 122_880
"""DuckDB's own row group size: one thread reads one group, and 10^7 rows make 82 of them."""
_RECORD_GROUP_ROWS = 15_360
"""The same of a table whose rows hold whole records: a group of envelopes has some 70 MB."""
ZSTD_LEVEL = 3

_ENCODINGS = {
    Kind.INTEGER: "DELTA_BINARY_PACKED",
    Kind.INSTANT: "DELTA_BINARY_PACKED",
    Kind.NUMBER: "BYTE_STREAM_SPLIT",
}
_DICTIONARY = frozenset({Kind.WORD, Kind.WORDS})


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: rows, bytes and their SHA-256 in bare hex."""

    rows: int
    bytes: int
    sha256: str


class _HashingSink(io.RawIOBase):
    """Passes bytes on to a file and hashes them on the way."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # Any: a buffer of pyarrow
        view = memoryview(data)
        self.file.write(view)
        self.hash.update(view)
        self.size += view.nbytes
        return view.nbytes


def writer_options(table: Table) -> dict[str, Any]:  # Any: keyword arguments of pyarrow
    """Options of ``pyarrow.parquet.ParquetWriter`` for a table."""
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": [_leaf(column.name, column.kind) for column in table.columns if column.kind in _DICTIONARY],
        "column_encoding": {
            column.name: _ENCODINGS[column.kind] for column in table.columns if column.kind in _ENCODINGS
        },
        "write_statistics": [
            _leaf(column.name, column.kind) for column in table.columns if column.kind is not Kind.BYTES
        ],
        "write_page_checksum": True,
        "version": "2.6",
    }


def row_group_rows(table: Table) -> int:
    """Rows of one row group of a table."""
    return _RECORD_GROUP_ROWS if any(column.kind is Kind.BYTES for column in table.columns) else ROW_GROUP_ROWS


def write_parquet(file: BinaryIO, table: Table, batches: Iterable[pa.Table]) -> Written:
    """Write row groups of ``row_group_rows`` from tables that follow each other in sort order.

    Memory stays within one row group and one input table, however many rows there are.
    """
    sink, rows, group = _HashingSink(file), 0, row_group_rows(table)
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), table.schema, **writer_options(table)) as writer:
        held: list[pa.Table] = []
        waiting = 0
        for batch in batches:
            held.append(batch)
            waiting += batch.num_rows
            rows += batch.num_rows
            if waiting >= group:
                joined = pa.concat_tables(held)
                whole = waiting - waiting % group
                writer.write_table(joined.slice(0, whole), row_group_size=group)
                held, waiting = [joined.slice(whole)], waiting - whole
        if waiting:
            writer.write_table(pa.concat_tables(held), row_group_size=group)
    return Written(rows, sink.size, sink.hash.hexdigest())


def read_parquet(path: Path, table: Table, *, sha256: str | None = None) -> pa.Table:
    """The rows of one part, as ``read_groups`` gives them."""
    return pa.concat_tables([table.empty(), *read_groups(path, table, sha256=sha256)])


def read_groups(
    path: Path, table: Table, *, sha256: str | None = None, window_key: str | None = None
) -> Iterator[pa.Table]:
    """The rows of one part a row group at a time, page checksums verified.

    Args:
        path: the part.
        table: whose rows it holds.
        sha256: of the whole file, checked before anything is decoded, where given.
        window_key: leaves out row groups that hold none of its rows, where given.

    Raises:
        PartCorruptError: the file is missing, cut or changed, or not a part of that table.
    """
    if sha256 is not None:
        check_bytes(path, sha256)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(table.schema):
                raise _corrupt(path, f"the part does not hold the columns of {table.schema_id}")
            for index in range(file.num_row_groups):
                if window_key is not None and _is_outside(file.metadata.row_group(index), table, window_key):
                    continue
                yield file.read_row_group(index).replace_schema_metadata(table.schema.metadata)
    except (OSError, pa.ArrowException):
        raise _corrupt(path, "the part cannot be read") from None


def _is_outside(group: pq.RowGroupMetaData, table: Table, window_key: str) -> bool:
    held = group.column(table.schema.get_field_index("window_key")).statistics
    return held is not None and held.has_min_max and not held.min <= window_key <= held.max


def has_columns_of(path: Path, table: Table) -> bool:
    """Whether a file is there and has exactly the table's columns; a file of an older schema has others."""
    try:
        return bool(pq.read_schema(path).names == table.schema.names)
    except (OSError, pa.ArrowInvalid):
        return False


def check_bytes(path: Path, sha256: str) -> None:
    """Compare a file's SHA-256 with the one its manifest lists.

    Raises:
        PartCorruptError: the file is missing or other bytes.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise _corrupt(path, "the part is missing or cannot be read") from None
    if found != sha256:
        raise _corrupt(path, "the part is not the one that was published")


def sorted_rows(table: Table, rows: pa.Table) -> pa.Table:
    """``rows`` in the table's sort order, nulls last; rows that are already sorted are returned as they are.

    Raises:
        InputError: the columns are not exactly those of the table.
    """
    if not rows.schema.equals(table.schema):
        raise InputError(
            f"rows are not those of {table.schema_id}",
            where=table.name,
            way_out="build them with the table's own builder",
        )
    if rows.num_rows < 2:
        return rows
    keys = [rows.column(name) for name in table.sort_by]
    ranks = [_ranks(key.combine_chunks()) for key in keys if not is_all(key, key[0])]
    undecided = np.ones(rows.num_rows - 1, dtype=bool)
    for rank in ranks:
        earlier, later = rank[:-1], rank[1:]
        if bool(np.any(undecided & (earlier > later))):
            order = np.lexsort(ranks[::-1])
            return rows.take(pa.array(order))
        undecided &= earlier == later
    return rows


def following(table: Table, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Pass on tables that are sorted and follow each other in the table's order.

    Raises:
        InputError: the columns are not those of the table, or rows are out of order.
    """
    last = table.empty()
    for batch in batches:
        joint = pa.concat_tables([last, batch.slice(0, 1)])
        if sorted_rows(table, batch) is not batch or sorted_rows(table, joint) is not joint:
            raise InputError(
                "rows are out of the table's order", where=table.name, way_out="give the rows in the order of its keys"
            )
        if batch.num_rows:
            last = batch.slice(batch.num_rows - 1)
            yield batch


def equal_rows(left: Iterable[pa.Table], right: Iterable[pa.Table]) -> int | None:
    """How many rows two sequences of tables hold, however they are cut; None where they do not hold the same ones."""
    ours, theirs = _filled(left), _filled(right)
    one, other, rows = next(ours, None), next(theirs, None), 0
    while one is not None and other is not None:
        size = min(one.num_rows, other.num_rows)
        if not one.slice(0, size).equals(other.slice(0, size)):
            return None
        rows += size
        one = one.slice(size) if size < one.num_rows else next(ours, None)
        other = other.slice(size) if size < other.num_rows else next(theirs, None)
    return rows if one is None and other is None else None


def _filled(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    return (table for table in tables if table.num_rows)


def is_all(column: pa.ChunkedArray, value: object) -> bool:
    """Whether every entry of a column is that value; false where one is null."""
    return bool(pc.all(pc.equal(column, value), skip_nulls=False).as_py())


def _ranks(column: pa.Array) -> np.ndarray:
    if not pa.types.is_string(column.type) and not pa.types.is_fixed_size_binary(column.type):
        numbers = column.cast(pa.int64()) if not pa.types.is_int64(column.type) else column
        return np.asarray(numbers.fill_null(np.iinfo(np.int64).max).to_numpy(zero_copy_only=False))
    encoded = column.dictionary_encode()
    places = np.empty(len(encoded.dictionary) + 1, dtype=np.int64)
    places[np.asarray(pc.array_sort_indices(encoded.dictionary))] = np.arange(len(encoded.dictionary))
    places[-1] = len(encoded.dictionary)
    return np.asarray(places[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)])


def _leaf(name: str, kind: Kind) -> str:
    return f"{name}.list.element" if kind is Kind.WORDS else name


def _corrupt(path: Path, what: str) -> PartCorruptError:
    return PartCorruptError(
        what,
        where=f"{path.parent.parent.name}/{path.parent.name}/{path.name}",
        way_out="materialize the window's assets again: the part is derived from the journal",
    )
