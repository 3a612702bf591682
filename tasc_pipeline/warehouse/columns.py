"""How a table is written down: one frozen dataclass per row, one ``Annotated`` column per field.

Rules:

1. A row class is the only description of its table. Arrow schema, view, documentation and tests are derived from it.
2. A column has a storage kind, a unit (also in its name where it has one) and a description; both go into the metadata
   of the Arrow field.
3. Null is null. A value that does not exist is never zero, and only columns typed ``| None`` may hold null.
4. A 32-byte identity is stored as 32 bytes and shown as the text that records carry (``sha256:...``, ``trace-...``).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Union, get_args, get_origin

import pyarrow as pa

from tasc_collector.errors import InputError


class Kind(StrEnum):
    """How a column is stored; see ``ARROW_TYPES`` and ``parquet.writer_options``."""

    WORD = "word"
    """Text of few distinct values: dictionary-encoded."""
    TEXT = "text"
    """Text that mostly differs from row to row."""
    WORDS = "words"
    """A list of words."""
    IDENTITY = "identity"
    """A 32-byte digest or keyed identity."""
    BYTES = "bytes"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    INSTANT = "instant"
    """Milliseconds since 1970, UTC."""


ARROW_TYPES: Mapping[Kind, pa.DataType] = {
    Kind.WORD: pa.string(),
    Kind.TEXT: pa.string(),
    Kind.WORDS: pa.list_(pa.string()),
    Kind.IDENTITY: pa.binary(32),
    Kind.BYTES: pa.binary(),
    Kind.INTEGER: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.FLAG: pa.bool_(),
    Kind.INSTANT: pa.timestamp("ms", tz="UTC"),
}

SQL_TYPES: Mapping[Kind, str] = {
    Kind.WORD: "VARCHAR",
    Kind.TEXT: "VARCHAR",
    Kind.WORDS: "VARCHAR[]",
    Kind.IDENTITY: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER: "DOUBLE",
    Kind.FLAG: "BOOLEAN",
    Kind.INSTANT: "TIMESTAMP WITH TIME ZONE",
}
"""Types that the views show."""

SHA256_PREFIX = "sha256:"


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """What the annotation of a field says: kind, description, unit, and for identities the text before the hex."""

    kind: Kind
    description: str
    unit: str = ""
    prefix: str = ""


def word(description: str) -> ColumnRule:
    """Text of few distinct values."""
    return ColumnRule(Kind.WORD, description)


def text(description: str) -> ColumnRule:
    """Text that mostly differs from row to row."""
    return ColumnRule(Kind.TEXT, description)


def words(description: str) -> ColumnRule:
    """A list of words."""
    return ColumnRule(Kind.WORDS, description)


def identity(description: str, *, prefix: str = "") -> ColumnRule:
    """32 bytes, shown as ``prefix`` and 64 hex digits."""
    return ColumnRule(Kind.IDENTITY, description, prefix=prefix)


def octets(description: str) -> ColumnRule:
    """Bytes of any length."""
    return ColumnRule(Kind.BYTES, description, "bytes")


def integer(description: str, unit: str) -> ColumnRule:
    """A 64-bit integer."""
    return ColumnRule(Kind.INTEGER, description, unit)


def number(description: str, unit: str) -> ColumnRule:
    """A finite double."""
    return ColumnRule(Kind.NUMBER, description, unit)


def flag(description: str) -> ColumnRule:
    """True or false."""
    return ColumnRule(Kind.FLAG, description)


def instant(description: str) -> ColumnRule:
    """A UTC instant; rows hold milliseconds since 1970."""
    return ColumnRule(Kind.INSTANT, description, "UTC")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind
    description: str
    unit: str
    prefix: str
    nullable: bool

    @property
    def field(self) -> pa.Field:
        """The Arrow field, with unit and description in its metadata."""
        metadata = {"description": self.description} | ({"unit": self.unit} if self.unit else {})
        return pa.field(self.name, ARROW_TYPES[self.kind], nullable=self.nullable, metadata=metadata)

    @property
    def comment(self) -> str:
        """Description and unit as the view's column comment."""
        return f"{self.description} [{self.unit}]" if self.unit else self.description

    def of_rows(self, rows: Sequence[object]) -> list[object]:
        """This column's values as Arrow takes them: identities from text to 32 bytes, everything else as it is."""
        values = [getattr(row, self.name) for row in rows]
        if self.kind is not Kind.IDENTITY:
            return values
        return [
            None if value is None else identity_bytes(value, prefix=self.prefix, field=self.name) for value in values
        ]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the warehouse.

    Attributes:
        name: also the name of its view and folder.
        schema_id: written into every part and manifest.
        description: the view's comment.
        sort_by: columns that order the rows of a part.
        columns: in order.
    """

    name: str
    schema_id: str
    description: str
    sort_by: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema with the table's id and description in its metadata."""
        return pa.schema(
            [column.field for column in self.columns],
            metadata={"tasc.schema_id": self.schema_id, "tasc.table": self.name, "description": self.description},
        )

    def column(self, name: str) -> Column:
        """The column of that name; raises ``KeyError`` where there is none."""
        return {column.name: column for column in self.columns}[name]

    def from_rows(self, rows: Iterable[object]) -> pa.Table:
        """An Arrow table of row dataclasses, in the order given.

        Raises:
            InputError: a value is not of its column's type, or null where null is not allowed.
        """
        held = list(rows)
        return self.from_columns({column.name: column.of_rows(held) for column in self.columns})

    def from_columns(self, columns: Mapping[str, Sequence[object] | pa.Array]) -> pa.Table:
        """An Arrow table of columns as Arrow takes them (identities as 32 bytes), one entry per column of the table.

        Raises:
            InputError: a column is missing or unknown, of another type, or holds null where null is not allowed.
        """
        if set(columns) != {column.name for column in self.columns}:
            raise InputError("columns are not those of the table", where=self.name, way_out="name exactly its columns")
        arrays = []
        for column in self.columns:
            values = columns[column.name]
            kind = ARROW_TYPES[column.kind]
            try:
                array = values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise InputError(
                    f"a value is not of type {kind}",
                    where=self.name,
                    field=column.name,
                    way_out="correct the row's value",
                ) from None
            if array.null_count and not column.nullable:
                raise InputError(
                    "null where a value is required", where=self.name, field=column.name, way_out="give the value"
                )
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def empty(self) -> pa.Table:
        """The table with no row."""
        return self.schema.empty_table()


def identity_bytes(value: str, *, prefix: str = "", field: str | None = None) -> bytes:
    """The 32 bytes of an identity's text.

    Raises:
        InputError: the text is not ``prefix`` and 64 hex digits.
    """
    bare = value.removeprefix(prefix)
    try:
        raw = bytes.fromhex(bare)
    except ValueError:
        raw = b""
    if len(raw) != 32 or len(bare) != 64 or (prefix and bare == value):
        raise InputError(
            "not a 32-byte identity",
            field=field,
            rule=f"'{prefix}' and 64 hex digits" if prefix else "64 hex digits",
            way_out="pass the identity as the record holds it",
        )
    return raw


def table(name: str, row: type, *, description: str, sort_by: tuple[str, ...], version: int = 1) -> Table:
    """The table that a row dataclass describes.

    Args:
        name: of table, view and folder.
        row: a dataclass whose fields are ``Annotated`` with a ``ColumnRule``.
        description: one sentence for the view's comment.
        sort_by: columns that order a part's rows.
        version: of the schema id ``tasc-<name>-v<version>``.

    Raises:
        ValueError: ``sort_by`` names an unknown column.
    """
    hints = typing.get_type_hints(row, include_extras=True)
    columns = tuple(_column(field.name, hints[field.name]) for field in dataclasses.fields(row))
    known = {column.name for column in columns}
    if not set(sort_by) <= known:
        raise ValueError(f"{name}: sort_by names an unknown column")
    return Table(name, f"tasc-{name.replace('_', '-')}-v{version}", description, sort_by, columns)


def _column(name: str, hint: Any) -> Column:  # Any: a runtime type annotation
    base, rule = get_args(hint)[0], next(item for item in get_args(hint)[1:] if isinstance(item, ColumnRule))
    nullable = get_origin(base) in (Union, types.UnionType) and type(None) in get_args(base)
    return Column(name, rule.kind, rule.description, rule.unit, rule.prefix, nullable)
