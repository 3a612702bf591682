from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tasc_pipeline.control.identifiers import codes_of, first_rows, id_column, matched, ranked, texts

IDS = st.lists(
    st.sampled_from(["", "a", "b", "a-b", "a.b", "case-10", "case-9", "case-9-long-enough-for-words"]), max_size=20
)


def colliding(columns):
    """A fingerprint that calls everything equal."""
    return np.zeros(len(columns[0]), dtype=np.uint64)


@given(IDS, st.data())
def test_codes_are_equal_exactly_where_rows_are(names, data) -> None:
    numbers = data.draw(st.lists(st.integers(-2, 2), min_size=len(names), max_size=len(names)))
    columns = id_column(names), np.array(numbers, dtype=np.int64)
    rows = list(zip(names, numbers, strict=True))
    for codes, count in (codes_of(*columns), codes_of(*columns, fingerprint=colliding)):
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
    places, distinct = ranked(id_column(names))
    assert texts(distinct) == sorted(set(names))
    assert [texts(distinct)[place] for place in places.tolist()] == names
    firsts = first_rows(places, len(distinct))
    assert [names.index(name) for name in sorted(set(names))] == firsts.tolist()


def test_ids_of_other_widths_match() -> None:
    assert matched([id_column(["a", "long-identifier-of-many-bytes"])], [id_column(["b", "a"])]).tolist() == [1, -1]
