from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasc_pipeline.control.identifiers import (
    codes_of,
    distinct,
    equal_rows,
    first_rows,
    id_column,
    matched,
    ordered,
    ordered_hex,
    ranked,
    texts,
)

IDS = st.lists(
    st.sampled_from(["", "a", "b", "a-b", "a.b", "case-10", "case-9", "case-9-long-enough-for-words"]), max_size=20
)


def nearly_colliding(columns):
    """Fingerprints that differ in their last bits only, so that they cannot be told apart by the others."""
    known = {}
    keys = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.uint64)


def colliding(columns):
    """A fingerprint that calls everything equal."""
    return np.zeros(len(columns[0]), dtype=np.uint64)


@given(IDS, st.data())
def test_codes_are_equal_exactly_where_rows_are(names, data) -> None:
    numbers = data.draw(st.lists(st.integers(-2, 2), min_size=len(names), max_size=len(names)))
    columns = id_column(names), np.array(numbers, dtype=np.int64)
    rows = list(zip(names, numbers, strict=True))
    for fingerprint in ({}, {"fingerprint": colliding}, {"fingerprint": nearly_colliding}):
        codes, count = codes_of(*columns, **fingerprint)
        assert count == len(set(rows))
        assert all((codes[i] == codes[j]) == (rows[i] == rows[j]) for i in range(len(rows)) for j in range(len(rows)))


@given(IDS, IDS)
def test_matches_are_equal_rows(wanted, among) -> None:
    columns = [id_column(wanted)], [id_column(among)]
    for found in (matched(*columns), matched(*columns, fingerprint=colliding)):
        assert len(found) == len(wanted)
        for name, row in zip(wanted, found.tolist(), strict=True):
            assert (row < 0) == (name not in among)
            assert row < 0 or among[row] == name


@given(IDS)
def test_ranks_follow_the_order_of_the_text(names) -> None:
    places, found = ranked(id_column(names))
    assert texts(found) == sorted(set(names))
    assert [texts(found)[place] for place in places.tolist()] == names
    firsts = first_rows(places, len(found))
    assert [names.index(name) for name in sorted(set(names))] == firsts.tolist()


def test_ids_of_other_widths_match() -> None:
    assert matched([id_column(["a", "long-identifier-of-many-bytes"])], [id_column(["b", "a"])]).tolist() == [1, -1]


@given(st.lists(st.sampled_from([0, 1, 2, 77, 2**40, 2**62])))
def test_order_keeps_equal_keys_as_they_come_however_large_they_are(keys) -> None:
    column = np.array(keys, dtype=np.int64)
    assert ordered(column).tolist() == sorted(range(len(keys)), key=lambda place: keys[place])
    places, firsts = distinct(column)
    assert [sorted(set(keys))[place] for place in places.tolist()] == keys
    assert firsts.tolist() == [keys.index(key) for key in sorted(set(keys))]


def test_digests_are_ordered_also_where_eight_bytes_do_not_tell_them_apart() -> None:
    for names in (["b" * 64, "a" * 64, "c" * 64], ["0" * 63 + "b", "0" * 63 + "a", "c" * 64], []):
        column = np.array([name.encode() for name in names], dtype="S64")
        assert texts(column[ordered_hex(column)]) == sorted(names)


@given(IDS, st.data())
def test_equal_rows_are_those_of_equal_text_whatever_the_widths(names, data) -> None:
    others = data.draw(st.lists(st.sampled_from([*names, "z"]), min_size=len(names), max_size=len(names)))
    found = equal_rows(id_column(names), id_column(others))
    assert found.tolist() == [one == other for one, other in zip(names, others, strict=True)]
