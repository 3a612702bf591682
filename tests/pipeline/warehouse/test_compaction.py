from __future__ import annotations

import dataclasses
import fcntl
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tasc_collector.contracts.part_manifest import CoveredWindow
from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.compaction import FAN_IN, compact, compact_due, due, large_rows
from tasc_pipeline.warehouse.database import connect
from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.forbidden import undeclared_columns
from tasc_pipeline.warehouse.manifests import (
    Source,
    is_published,
    published,
    read_window,
    verify_parts,
    window_folders,
    window_keys,
)
from tasc_pipeline.warehouse.publish import read_retired
from tasc_pipeline.warehouse.schemas import ENVELOPES, TRACES
from tests.support.mortal_disk import MortalDisk, Stopped

KEYS = ("w1.r01-00000000", "w2.r01-00000000", "w3.r01-00000000")
SUMS = "SELECT window_key, count(*), sum(ttft_ms) FROM traces GROUP BY ALL ORDER BY ALL"
LARGE = 100_000


def key(number: int) -> str:
    return f"w{number:05d}.r01-00000000"


def part(first: int, windows: int, rows: int, without: tuple[str, ...] = ()) -> Source:
    """A part of ``windows`` windows that share ``rows``."""
    covers = tuple(
        CoveredWindow(window_key=key(first + place), sha256="0" * 64, rows=rows // windows) for place in range(windows)
    )
    alone = covers[0].window_key if windows == 1 else None
    return Source(Path(f"part-{first}"), "v1", rows, "0" * 64, alone, without, covers)


@pytest.fixture
def three(house, make_rows):
    for window_key in KEYS:
        house.publish_traces(window_key, make_rows(window_key, cases=3))
    house.build()
    return house


@pytest.fixture
def many(house, make_rows):
    """Publishes windows of those numbers, one case each, and compacts what is due."""

    def publish_and_compact(*numbers: int) -> tuple[str, ...]:
        for number in numbers:
            house.publish_traces(key(number), make_rows(key(number), cases=1))
        return compact_due(house.root, sign=house.signer, clock=house.clock)

    return publish_and_compact


def sums(home: Path) -> list[tuple[object, ...]]:
    with connect(home) as session:
        return session.execute(SUMS).fetchall()


def covered(house) -> list[list[str]]:
    return [[item.window_key for item in group.covers] for _, group in published(house.root, "traces").compacted]


def sources(house) -> tuple[Source, ...]:
    return published(house.root, "traces").sources(house.root, "traces")


def unread(house) -> set[str]:
    held = published(house.root, "traces").unread(house.root, "traces")
    return {path.relative_to(house.root / "traces").as_posix() for path in held}


def ttft_sums(house, windows: int) -> list[float]:
    """As ``sums``, by the product's own reader."""
    held = (read_window(house.root, "traces", key(number)).column("ttft_ms") for number in range(windows))
    return [sum(column.to_pylist()) for column in held]


def test_compaction_changes_no_answer_and_leaves_one_sorted_part(three) -> None:
    before = sums(three.home)
    manifest = compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.build()
    assert sums(three.home) == before == [(window_key, 6, 454.5) for window_key in KEYS]
    (source,) = sources(three)
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
    assert is_published(three.root, "traces", KEYS[1]) and not is_published(three.root, "traces", key(1))
    assert read_window(three.root, "traces", KEYS[1]).equals(rows)
    assert verify_parts(three.root) == 1
    assert sums(three.home) == [(window_key, 6, 454.5) for window_key in KEYS]


def test_a_window_published_again_counts_instead_of_its_compacted_rows(three, make_rows) -> None:
    compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.publish_traces(KEYS[1], [dataclasses.replace(row, ttft_ms=1.0) for row in make_rows(KEYS[1], cases=3)])
    three.build()
    expected = [(KEYS[0], 6, 454.5), (KEYS[1], 6, 6.0), (KEYS[2], 6, 454.5)]
    assert sums(three.home) == expected
    three.clock.advance(hours=25)
    three.build()
    three.publish_traces("w4.r01-00000000", make_rows("w4.r01-00000000", cases=3))
    compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.build()
    assert sums(three.home) == [*expected, ("w4.r01-00000000", 6, 454.5)]
    assert len(sources(three)) == 1


def test_a_window_that_is_published_while_others_are_compacted_counts(three, make_rows) -> None:
    changed = [dataclasses.replace(row, ttft_ms=1.0) for row in make_rows(KEYS[1], cases=3)]
    with ThreadPoolExecutor(1) as elsewhere:

        def watch(what: str, total: int):
            def tell(rows: int) -> None:
                elsewhere.submit(three.publish_traces, KEYS[1], changed).result(timeout=30)

            return tell

        compact(three.root, "traces", sign=three.signer, clock=three.clock, watch=watch)
    three.build()
    assert sums(three.home) == [(KEYS[0], 6, 454.5), (KEYS[1], 6, 6.0), (KEYS[2], 6, 454.5)]


def test_a_damaged_part_stops_compaction_before_anything_changes(three) -> None:
    source = sources(three)[0]
    damaged = bytearray(source.path.read_bytes())
    damaged[100] ^= 1
    source.path.write_bytes(damaged)
    with pytest.raises(PartCorruptError, match="the part is not the one that was published"):
        compact(three.root, "traces", sign=three.signer, clock=three.clock)
    assert published(three.root, "traces").compacted == ()


def test_a_missing_part_of_a_window_is_never_replaced_by_its_older_compacted_rows(three, make_rows) -> None:
    compact(three.root, "traces", sign=three.signer, clock=three.clock)
    path = three.publish_traces(KEYS[1], make_rows(KEYS[1], cases=2))
    path.unlink()
    with pytest.raises(PartCorruptError, match="the part is missing"):
        read_window(three.root, "traces", KEYS[1])


@pytest.mark.parametrize("hours", [0, 25])
@pytest.mark.parametrize("damage", ["corrupt", "delete"])
def test_a_damaged_compacted_part_is_mended_by_publishing_its_windows_again(
    three, make_rows, damage: str, hours: int
) -> None:
    """Before the windows' own parts are deleted, and after."""
    expected = sums(three.home)
    compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.build()
    three.clock.advance(hours=hours)
    three.build()
    (source,) = sources(three)
    if damage == "delete":
        source.path.unlink()
    else:
        held = bytearray(source.path.read_bytes())
        held[len(held) // 2] ^= 1
        source.path.write_bytes(held)
    for done, window_key in enumerate(KEYS):
        left = r"materialize its windows again \(tasc collect, tasc assess\): " + ", ".join(KEYS[done:]) + "$"
        with pytest.raises(PartCorruptError, match=left):
            verify_parts(three.root)
        with pytest.raises(PartCorruptError, match="materialize the window's assets again"):
            read_window(three.root, "traces", window_key)
        if damage == "delete":
            with pytest.raises(PartCorruptError, match=f"a published part is missing -> {left}"):
                three.build()
        three.publish_traces(window_key, make_rows(window_key, cases=3))
        assert read_window(three.root, "traces", window_key).num_rows == 6
    three.build()
    assert sums(three.home) == expected and verify_parts(three.root) == 3
    compact(three.root, "traces", sign=three.signer, clock=three.clock)
    three.build()
    assert sums(three.home) == expected and verify_parts(three.root) == 1


def test_one_part_is_nothing_to_compact(house, make_rows) -> None:
    house.publish_traces(KEYS[0], make_rows(KEYS[0]))
    with pytest.raises(InputError, match="fewer than two parts"):
        compact(house.root, "traces", sign=house.signer, clock=house.clock)


def test_parts_are_due_when_a_tier_is_full_in_order_of_their_windows() -> None:
    own = [part(number, 1, 10) for number in range(3)]
    assert due(own, large=LARGE) == ()
    assert due([*reversed(own), part(3, 1, LARGE)], large=LARGE) == (), "a large one is no small one"
    assert due([part(3, 1, 10), *reversed(own)], large=LARGE) == (*own, part(3, 1, 10))
    fours = [part(100 + 4 * number, 4, 40) for number in range(4)]
    assert due([*own, *fours], large=LARGE) == tuple(fours)
    assert due([*own, part(3, 1, 10), *fours], large=LARGE) == (*own, part(3, 1, 10)), "the lowest tier first"
    halved = part(900, 4, 40, without=(key(900),))
    assert due([*own, halved], large=LARGE) == (*own, halved), "what does not count makes no tier"
    big = [part(number, 1, 40_000) for number in range(5)]
    assert due(big, large=LARGE) == tuple(big[:3]), "no more than makes a large one"


def test_many_windows_leave_few_small_parts_and_rewrite_each_row_a_few_times() -> None:
    source, parts, written, rows, most = random.Random(1), [], 0, 0, 0
    for number in range(1024):
        size = source.choice((0, 20, 20, 300, 5_000, 150_000))
        parts.append(part(number, 1, size))
        rows += size
        while taken := due(parts, large=LARGE):
            assert sum(each.rows for each in taken) < 2 * LARGE
            covers = tuple(window for each in taken for window in each.covers)
            total = sum(each.rows for each in taken)
            parts = [each for each in parts if each not in taken]
            parts.append(Source(Path(f"merged-{number}-{len(covers)}"), "v1", total, "0" * 64, None, (), covers))
            written += total
        most = max(most, sum(each.rows < LARGE for each in parts))
    assert sum(each.rows for each in parts) == rows and sum(len(each.covers) for each in parts) == 1024
    assert 3 * 3 < most <= 3 * 6
    assert written < 5 * rows


def test_a_table_is_compacted_when_four_parts_came_and_again_when_there_are_four_of_those(house, many) -> None:
    assert many(*range(3)) == ()
    assert many(3) == ("traces",)
    assert many() == ()
    for number in range(4, 16):
        many(number)
    assert covered(house)[0] == [key(number) for number in range(16)]
    assert len(sources(house)) == 1
    many(*range(16, 19))
    house.build()
    assert len(sources(house)) == 4
    assert sums(house.home) == [(key(number), 2, 150.0) for number in range(19)]
    house.clock.advance(hours=25)
    house.build()
    assert sums(house.home) == [(key(number), 2, 150.0) for number in range(19)]
    left = [*house.root.glob("traces/window_key=*/*.parquet"), *house.root.glob("traces/compacted/*/*.parquet")]
    assert set(left) == {source.path for source in sources(house)}, "replaced ones go after a day, merged ones too"


def test_interleaved_parts_are_merged_in_order_and_a_window_published_again_counts_once(house, many, make_rows) -> None:
    for start in range(4):
        many(*range(16)[start::4])
    assert [len(held) for held in covered(house)] == [16, 4, 4, 4, 4]
    (merged,) = sources(house)
    assert pq.read_table(merged.path, partitioning=None).column("window_key").to_pylist() == [
        key(number) for number in range(16) for _ in range(2)
    ]
    slower = [dataclasses.replace(row, ttft_ms=1.0) for row in make_rows(key(9), cases=1)]
    house.publish_traces(key(9), slower)
    house.clock.advance(hours=25)
    house.build()
    many(*range(100, 103))
    house.build()
    expected = [(key(n), 2, 2.0 if n == 9 else 150.0) for n in [*range(16), *range(100, 103)]]
    assert sums(house.home) == expected
    assert covered(house)[0] == [key(9), *(key(number) for number in range(100, 103))]
    house.clock.advance(hours=25)
    house.build()
    assert read_window(house.root, "traces", key(9)).column("ttft_ms").to_pylist() == [1.0, 1.0]
    last = compact(house.root, "traces", sign=house.signer, clock=house.clock)
    house.build()
    assert (last.parts[0].rows, sums(house.home)) == (2 * 19, expected)


def test_a_window_published_again_is_compacted_though_another_part_covers_it(house, many, make_rows) -> None:
    many(*range(4))
    for number in range(4):
        again = [dataclasses.replace(row, ttft_ms=2.0) for row in make_rows(key(number), cases=1)]
        house.publish_traces(key(number), again)
    assert len(sources(house)) == 4
    assert many() == ("traces",)
    assert len(sources(house)) == 1
    house.clock.advance(hours=25)
    house.build()
    assert sums(house.home) == [(key(number), 2, 4.0) for number in range(4)]


def test_one_call_writes_a_bounded_number_of_rows(house, many, make_rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasc_pipeline.warehouse.compaction.row_group_rows", lambda table: 2)
    for number in range(12):
        house.publish_traces(key(number), make_rows(key(number), cases=1))
    assert large_rows(TRACES) == 8
    assert many() == ("traces",)
    assert [len(held) for held in covered(house)] == [4], "four windows are a large part; the next call goes on"
    assert many() == many() == ("traces",)
    house.build()
    assert sums(house.home) == [(key(number), 2, 150.0) for number in range(12)]


def test_whoever_comes_while_another_compacts_passes_by(three, many) -> None:
    with (three.root / "traces" / ".compacting").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert many(*range(4)) == ()
        with pytest.raises(InputError, match="another process compacts the table"):
            compact(three.root, "traces", sign=three.signer, clock=three.clock)
    assert many() == ("traces",)


def test_an_end_between_any_two_steps_changes_no_answer_and_the_next_merge_retires_what_is_left(
    house, make_rows, tmp_path: Path
) -> None:
    for number in range(2):
        house.publish_traces(key(number), make_rows(key(number), cases=1))
    compact(house.root, "traces", sign=house.signer, clock=house.clock)
    house.publish_traces(key(1), [dataclasses.replace(row, ttft_ms=7.0) for row in make_rows(key(1), cases=1)])
    house.publish_traces(key(2), make_rows(key(2), cases=1))
    expected = [150.0, 14.0, 150.0]
    steps, left_behind = 0, 0
    while True:
        copied = dataclasses.replace(house, home=tmp_path / f"copy-{steps}")
        shutil.copytree(house.home, copied.home)
        folder = copied.root / "traces"
        try:
            compact(copied.root, "traces", sign=house.signer, clock=house.clock, disk=MortalDisk(steps))
        except Stopped:
            steps += 1
            held = published(copied.root, "traces")
            assert sum(part.rows - 2 * len(part.without) for part in held.sources(copied.root, "traces")) == 6
            assert ttft_sums(copied, 3) == expected
            left_behind += not unread(copied) <= set(read_retired(folder))
            copied.publish_traces(key(20), make_rows(key(20), cases=1))
            compact(copied.root, "traces", sign=house.signer, clock=house.clock)
            assert len(sources(copied)) == 1 and unread(copied) <= set(read_retired(folder))
            assert ttft_sums(copied, 3) == expected
            continue
        break
    assert steps > 8 and left_behind > 0
    copied.build()
    assert sums(copied.home) == [(key(number), 2, total) for number, total in enumerate(expected)]


def test_an_open_session_keeps_answering_while_parts_are_merged_and_merged_again(house, many) -> None:
    many(*range(3))
    house.build()
    with connect(house.home) as session:
        assert session.execute("SELECT count(*) FROM traces").fetchall() == [(6,)]
        for first in range(3, 19, 4):
            many(*range(first, first + 4))
        assert [len(held) for held in covered(house)] == [19, 4, 4, 4, 7]
        house.clock.advance(hours=23)
        house.build()
        assert session.execute("SELECT count(*) FROM traces").fetchall() == [(6,)]
    assert sums(house.home) == [(key(number), 2, 150.0) for number in range(19)]


def test_a_compacted_part_with_another_column_is_named(house, many) -> None:
    many(*range(4))
    (source,) = sources(house)
    assert undeclared_columns(house.root, key(1)) == []
    held = pq.read_table(source.path, partitioning=None)
    pq.write_table(held.append_column("prompt", [["text"] * held.num_rows]), source.path)
    assert undeclared_columns(house.root, key(1)) == ["traces.prompt"]
    assert undeclared_columns(house.root, key(30)) == []


def test_parts_of_an_older_schema_stay_as_they_are(house, many, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = dataclasses.replace(TRACES, schema_id="tasc-traces-v2")
    with monkeypatch.context() as patched:
        patched.setattr("tasc_pipeline.warehouse.compaction.get_table", lambda _: newer)
        assert many(*range(FAN_IN)) == ()
    assert len(sources(house)) == FAN_IN
    assert many() == ("traces",)


def test_large_is_a_matter_of_bytes_too() -> None:
    assert (large_rows(TRACES), large_rows(ENVELOPES)) == (491_520, 61_440)
