from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.compaction import compact, compact_due
from tasc_pipeline.warehouse.database import connect
from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.manifests import published, read_window, verify_parts, window_folders, window_keys
from tasc_pipeline.warehouse.schemas import TRACES

KEYS = ("w1.r01-00000000", "w2.r01-00000000", "w3.r01-00000000")
SUMS = "SELECT window_key, count(*), sum(ttft_ms) FROM traces GROUP BY ALL ORDER BY ALL"


@pytest.fixture
def three(house, make_rows):
    for key in KEYS:
        house.publish_traces(key, make_rows(key, cases=3))
    house.build()
    return house


def test_compaction_changes_no_answer_and_leaves_one_sorted_part(three) -> None:
    with connect(three.home) as session:
        before = session.execute(SUMS).fetchall()
    manifest = compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.build()
    with connect(three.home) as session:
        assert session.execute(SUMS).fetchall() == before == [(key, 6, 454.5) for key in KEYS]
    (source,) = published(three.root, "traces").sources(three.root, "traces")
    table = pq.read_table(source.path, partitioning=None)
    assert table.column("window_key").to_pylist() == sorted(table.column("window_key").to_pylist())
    assert [item.window_key for item in manifest.covers] == list(KEYS)
    assert manifest.parts[0].rows == 18


def test_old_parts_go_after_a_day_and_windows_stay_readable(three) -> None:
    rows = read_window(three.root, "traces", KEYS[1])
    compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.build()
    assert window_folders(three.root, "traces") == KEYS
    three.clock.advance(hours=25)
    three.build()
    assert window_folders(three.root, "traces") == ()
    assert window_keys(three.root, "traces") == KEYS
    assert read_window(three.root, "traces", KEYS[1]).equals(rows)
    assert verify_parts(three.root) == 1
    with connect(three.home) as session:
        assert session.execute(SUMS).fetchall() == [(key, 6, 454.5) for key in KEYS]


def test_a_window_published_again_counts_instead_of_its_compacted_rows(three, make_rows) -> None:
    compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.publish_traces(KEYS[1], [dataclasses.replace(row, ttft_ms=1.0) for row in make_rows(KEYS[1], cases=3)])
    three.build()
    expected = [(KEYS[0], 6, 454.5), (KEYS[1], 6, 6.0), (KEYS[2], 6, 454.5)]
    with connect(three.home) as session:
        assert session.execute(SUMS).fetchall() == expected
    three.clock.advance(hours=25)
    three.build()
    three.publish_traces("w4.r01-00000000", make_rows("w4.r01-00000000", cases=3))
    compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.build()
    with connect(three.home) as session:
        assert session.execute(SUMS).fetchall() == [*expected, ("w4.r01-00000000", 6, 454.5)]


def test_a_window_that_is_published_while_others_are_compacted_counts(three, make_rows) -> None:
    changed = [dataclasses.replace(row, ttft_ms=1.0) for row in make_rows(KEYS[1], cases=3)]
    with ThreadPoolExecutor(1) as elsewhere:

        def watch(what: str, total: int):
            def tell(rows: int) -> None:
                elsewhere.submit(three.publish_traces, KEYS[1], changed).result(timeout=30)

            return tell

        compact(three.root, "traces", sign=three.signer, clock=three.clock, watch=watch, window_keys=KEYS)
    three.build()
    with connect(three.home) as session:
        assert session.execute(SUMS).fetchall() == [(KEYS[0], 6, 454.5), (KEYS[1], 6, 6.0), (KEYS[2], 6, 454.5)]


def test_a_damaged_part_stops_compaction_before_anything_changes(three) -> None:
    source = published(three.root, "traces").sources(three.root, "traces")[0]
    damaged = bytearray(source.path.read_bytes())
    damaged[100] ^= 1
    source.path.write_bytes(damaged)
    with pytest.raises(PartCorruptError, match="the part is not the one that was published"):
        compact(three.root, "traces", sign=three.signer, clock=three.clock)
    assert published(three.root, "traces").compacted == ()


def test_one_window_is_nothing_to_compact(three) -> None:
    with pytest.raises(InputError, match="fewer than two windows"):
        compact(three.root, "traces", sign=three.signer, clock=three.clock, window_keys=KEYS[:1])


def test_tables_are_compacted_when_due_and_only_their_new_windows(three, make_rows) -> None:
    assert compact_due(three.root, sign=three.signer, clock=three.clock, after=4) == ()
    assert compact_due(three.root, sign=three.signer, clock=three.clock, after=3) == ("traces",)
    assert compact_due(three.root, sign=three.signer, clock=three.clock, after=1) == ()
    for key in ("w4.r01-00000000", "w5.r01-00000000"):
        three.publish_traces(key, make_rows(key, cases=3))
    assert compact_due(three.root, sign=three.signer, clock=three.clock, after=2) == ("traces",)
    covers = [[item.window_key for item in group.covers] for _, group in published(three.root, "traces").compacted]
    assert covers == [["w4.r01-00000000", "w5.r01-00000000"], list(KEYS)]
    three.build()
    with connect(three.home) as session:
        assert session.execute("SELECT count(*) FROM traces").fetchall() == [(30,)]


def test_parts_of_an_older_schema_stay_as_they_are(three, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = dataclasses.replace(TRACES, schema_id="tasc-traces-v2")
    with monkeypatch.context() as patched:
        patched.setattr("tasc_pipeline.warehouse.compaction.get_table", lambda _: newer)
        assert compact_due(three.root, sign=three.signer, clock=three.clock, after=3) == ()
    assert len(window_folders(three.root, "traces")) == 3
    assert compact_due(three.root, sign=three.signer, clock=three.clock, after=3) == ("traces",)
