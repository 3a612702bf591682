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


def at(column: npt.NDArray[Any], rows: Codes) -> npt.NDArray[Any]:  # Any: of whichever kind
    """The entries of a column at these places; what ``column[rows]`` is, copied an entry at a time."""
    return column.take(rows, axis=0)


def ordered(keys: npt.NDArray[Any]) -> Codes:  # Any: integers, none of them negative
    """The places of keys in their order; equal keys stay as they come.

    Where key and place fit into 64 bits together both are sorted as one number, several times faster than ``argsort``.
    """
    bits = len(keys).bit_length()
    if not len(keys) or int(keys.max()) >> (64 - bits):
        return np.argsort(keys, kind="stable")
    packed = (keys.astype(np.uint64) << np.uint64(bits)) | np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << bits) - 1)).astype(np.int64)


def distinct(keys: npt.NDArray[Any]) -> tuple[Codes, Codes]:  # Any: integers, none of them negative
    """For each key its place among the distinct ones in order, and the first row of each."""
    order = ordered(keys)
    found = keys[order]
    new = np.append(True, found[1:] != found[:-1])[: len(keys)]
    places = np.empty(len(keys), dtype=np.int64)
    places[order] = np.cumsum(new) - 1
    return places, order[new]


def ordered_hex(column: Ids) -> Codes:
    """The places of distinct digests in their order: by their first eight bytes, by all where two share these."""
    head = column.astype("S8").view(">u8").astype(np.uint64)
    order = np.argsort(head)
    found = head[order]
    return np.argsort(column) if np.any(found[1:] == found[:-1]) else order


def equal_rows(left: Ids, right: Ids) -> Flags:
    """Where two columns of one length have the same identifier."""
    left, right = _same_width(left, right)
    found = np.ones(len(left), dtype=bool)
    for start in range(0, len(left), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for one, other in zip(_words(left[block]), _words(right[block]), strict=True):
            found[block] &= one == other
    return found


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
    order = _by_fingerprint(found)
    in_order = found[order]
    new = np.append(True, in_order[1:] != in_order[:-1])
    result = np.empty(len(order), dtype=np.int64)
    result[order] = np.cumsum(new) - 1
    firsts, others = order[new], np.sort(order[~new])
    if not _all_equal(columns, others, [at(column, firsts) for column in columns], result[others]):
        return _codes_by_dictionary(columns)
    return result, len(firsts)


def ranked(column: Ids) -> tuple[Codes, Ids]:
    """The place of each identifier among the distinct ones in order, and these."""
    codes, count = codes_of(column)
    different = column[first_rows(codes, count)]
    order = np.argsort(different)
    places = np.empty(count, dtype=np.int64)
    places[order] = np.arange(count)
    return places[codes], different[order]


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
    order = _by_fingerprint(known)
    in_order = known[order]
    repeated = np.flatnonzero(in_order[1:] == in_order[:-1])
    seek = _by_fingerprint(found)
    places = np.empty(len(found), dtype=np.int64)
    places[seek] = np.minimum(np.searchsorted(in_order, found[seek]), len(in_order) - 1)
    result = np.where(in_order[places] == found, order[places], -1)
    hits = np.flatnonzero(result >= 0)
    if not (
        _all_equal(among, order[repeated], among, order[repeated + 1]) and _all_equal(wanted, hits, among, result[hits])
    ):
        return _matched_by_dictionary(wanted, among)
    return result


def _by_fingerprint(found: Words) -> Codes:
    """The places of fingerprints in their order, sorted by as many of their bits as leave room for the place.

    Two different ones that agree in these bits are rare; then all bits are sorted by.
    """
    low = np.uint64((1 << len(found).bit_length()) - 1)
    packed = (found & ~low) | np.arange(len(found), dtype=np.uint64)
    packed.sort()
    order = (packed & low).astype(np.int64)
    in_order, head = found[order], packed & ~low
    mixed = (head[1:] == head[:-1]) & (in_order[1:] != in_order[:-1])
    return np.argsort(found) if np.any(mixed) else order


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
            first, second = at(column, rows[block]).view(np.uint8), at(other, other_rows[block]).view(np.uint8)
            if not np.array_equal(first, second):
                return False
    return True


def _words(column: npt.NDArray[Any]) -> Iterable[Words]:  # Any: bytes or integers
    if column.dtype.kind != "S":
        yield column.astype(np.int64).view(np.uint64)
        return
    width, size = -(-column.dtype.itemsize // 8), column.dtype.itemsize
    octets = np.ascontiguousarray(column).view(np.uint8).reshape(len(column), size)
    if size % 8:
        padded = np.zeros((len(column), width * 8), dtype=np.uint8)
        padded[:, :size] = octets
        octets = padded
    words = octets.view("<u8")
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
