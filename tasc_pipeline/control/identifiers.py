"""Identifiers as numpy columns: equal rows found and ordered without a Python step per row. Pure.

Ids of the contracts are ASCII slugs, digests or hex, so a column of bytes (``dtype S``) holds them exactly, and the
order of bytes is the order of UTF-16 units that the original project sorts by.

Equal keys are found by a 64-bit fingerprint, and every pair that a fingerprint calls equal is then compared byte by
byte. Two different keys with one fingerprint, by chance or on purpose, cost time, never a wrong match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.bytes_]
"""One identifier per row; empty where there is none."""
Codes: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.uint64]

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_SHIFT: Final = np.uint64(32)
_BLOCK_ROWS: Final = 8192
"""Rows of a step; their bytes stay in the processor's cache while each is read word by word."""


def id_column(values: Iterable[str | None]) -> Ids:
    """A column of identifiers; ``None`` becomes the empty one."""
    return np.array([(value or "").encode("ascii") for value in values], dtype=np.bytes_)


def constant(value: str, rows: int) -> Ids:
    """A column that holds one identifier in every row."""
    return np.full(rows, value.encode("ascii"))


def texts(column: Ids) -> list[str]:
    """The identifiers as text."""
    return [bytes(value).decode("ascii") for value in column.tolist()]


def fingerprints(columns: Sequence[npt.NDArray[Any]]) -> Words:  # Any: bytes or integers
    """One 64-bit fingerprint per row over all columns.

    Args:
        columns: identifiers or integers, of one length.
    """
    found = np.full(len(columns[0]), _ODD, dtype=np.uint64)
    for start in range(0, len(found), _BLOCK_ROWS):
        block = found[start : start + _BLOCK_ROWS]
        for column in columns:
            for word in _words(column[start : start + _BLOCK_ROWS]):
                block ^= word
                block *= _MIX
                block ^= block >> _SHIFT
            block *= _ODD
            block ^= block >> _SHIFT
    return found


def codes_of(
    *columns: npt.NDArray[Any],  # Any: bytes or integers
    fingerprint: Callable[[Sequence[npt.NDArray[Any]]], Words] = fingerprints,
) -> tuple[Codes, int]:
    """Small integers that are equal exactly where rows are equal in every column, and how many there are.

    Args:
        columns: identifiers or integers, of one length.
        fingerprint: for tests of what happens when fingerprints collide.
    """
    if len(columns[0]) == 0:
        return np.zeros(0, dtype=np.int64), 0
    found = fingerprint(columns)
    order = np.argsort(found)
    ordered = found[order]
    new = ordered[1:] != ordered[:-1]
    same = np.flatnonzero(~new)
    if not _all_equal(columns, order[same], columns, order[same + 1]):
        return _codes_by_dictionary(columns)
    result = np.empty(len(order), dtype=np.int64)
    result[order] = np.concatenate([[0], np.cumsum(new)])
    return result, int(np.count_nonzero(new)) + 1


def ranked(column: Ids) -> tuple[Codes, Ids]:
    """The place of each identifier among the distinct ones in order, and these."""
    codes, count = codes_of(column)
    representative = np.zeros(count, dtype=np.int64)
    representative[codes[::-1]] = np.arange(len(column) - 1, -1, -1)
    distinct = column[representative]
    order = np.argsort(distinct)
    places = np.empty(count, dtype=np.int64)
    places[order] = np.arange(count)
    return places[codes], distinct[order]


def first_rows(codes: Codes, count: int) -> Codes:
    """The first row of each code, or -1 where no row has it."""
    found = np.full(count, -1, dtype=np.int64)
    found[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return found


def matched(
    wanted: Sequence[npt.NDArray[Any]],  # Any: bytes or integers
    among: Sequence[npt.NDArray[Any]],
    fingerprint: Callable[[Sequence[npt.NDArray[Any]]], Words] = fingerprints,
) -> Codes:
    """For each row of ``wanted``, a row of ``among`` that is equal in every column, or -1.

    Args:
        wanted: columns of one length.
        among: as many columns, of one length; where rows repeat, one of them is found.
        fingerprint: for tests of what happens when fingerprints collide.
    """
    if not len(wanted[0]) or not len(among[0]):
        return np.full(len(wanted[0]), -1, dtype=np.int64)
    pairs = [_same_width(left, right) for left, right in zip(wanted, among, strict=True)]
    wanted, among = [left for left, _ in pairs], [right for _, right in pairs]
    found, known = fingerprint(wanted), fingerprint(among)
    order = np.argsort(known)
    ordered = known[order]
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    seek = np.argsort(found)
    places = np.empty(len(found), dtype=np.int64)
    places[seek] = np.minimum(np.searchsorted(ordered, found[seek]), len(ordered) - 1)
    result = np.where(ordered[places] == found, order[places], -1)
    hits = np.flatnonzero(result >= 0)
    if not (
        _all_equal(among, order[repeated], among, order[repeated + 1]) and _all_equal(wanted, hits, among, result[hits])
    ):
        return _matched_by_dictionary(wanted, among)
    return result


def _same_width(
    left: npt.NDArray[Any], right: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:  # Any: bytes or integers
    kind = np.promote_types(left.dtype, right.dtype)
    return left.astype(kind, copy=False), right.astype(kind, copy=False)


def _all_equal(
    columns: Sequence[npt.NDArray[Any]], rows: Codes, others: Sequence[npt.NDArray[Any]], other_rows: Codes
) -> bool:  # Any: bytes or integers
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for column, other in zip(columns, others, strict=True):
            # as octets: of one width, padded alike, and much faster to compare than as text
            first, second = column[rows[block]].view(np.uint8), other[other_rows[block]].view(np.uint8)
            if not np.array_equal(first, second):
                return False
    return True


def _words(column: npt.NDArray[Any]) -> Iterable[Words]:  # Any: bytes or integers
    if column.dtype.kind != "S":
        yield column.astype(np.int64).view(np.uint64)
        return
    width, size = -(-column.dtype.itemsize // 8), column.dtype.itemsize
    padded = np.zeros((len(column), width * 8), dtype=np.uint8)
    padded[:, :size] = np.ascontiguousarray(column).view(np.uint8).reshape(len(column), size)
    words = padded.view("<u8")
    for place in range(width):
        yield words[:, place]


def _codes_by_dictionary(columns: Sequence[npt.NDArray[Any]]) -> tuple[Codes, int]:  # Any: bytes or integers
    seen: dict[tuple[Any, ...], int] = {}
    found = [seen.setdefault(key, len(seen)) for key in _keys(columns)]
    return np.array(found, dtype=np.int64), len(seen)


def _matched_by_dictionary(
    wanted: Sequence[npt.NDArray[Any]], among: Sequence[npt.NDArray[Any]]
) -> Codes:  # Any: bytes or integers
    rows = {key: row for row, key in enumerate(_keys(among))}
    return np.array([rows.get(key, -1) for key in _keys(wanted)], dtype=np.int64)


def _keys(columns: Sequence[npt.NDArray[Any]]) -> Iterable[tuple[Any, ...]]:  # Any: bytes or integers
    return zip(*(column.tolist() for column in columns), strict=True)
