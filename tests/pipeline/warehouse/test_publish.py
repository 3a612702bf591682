from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import random
import resource
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasc_collector.errors import InputError
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.disk import Disk
from tasc_pipeline.warehouse.errors import PartCorruptError, WarehouseError
from tasc_pipeline.warehouse.manifests import published, read_window, verify_parts, window_keys
from tasc_pipeline.warehouse.parquet import equal_rows, read_parquet, row_group_rows, sorted_rows, write_parquet
from tasc_pipeline.warehouse.publish import publish
from tasc_pipeline.warehouse.schemas import ENVELOPES, REPORTED_SCORES, TRACES
from tasc_pipeline.warehouse.tables_assessment import ReportedScoreRow
from tests.support.mortal_disk import MortalDisk, Stopped

KEY = "w1.r01-0a1b2c3d"


def test_publishing_the_same_rows_in_any_order_gives_the_same_bytes(house, make_rows) -> None:
    rows = make_rows(cases=200)
    first = house.publish_traces(KEY, rows)
    before = first.read_bytes()
    shuffled = rows[:]
    random.Random(5).shuffle(shuffled)
    house.clock.advance(hours=1)
    second = house.publish_traces(KEY, shuffled)
    assert second == first
    assert second.read_bytes() == before
    assert [path.name for path in first.parent.glob("part-*")] == [first.name]


def test_a_part_is_sorted_zstd_checksummed_and_named_by_its_digest(house, make_rows) -> None:
    path = house.publish_traces(KEY, list(reversed(make_rows(cases=5))))
    table = pq.read_table(path, partitioning=None)
    assert table.column("role").to_pylist() == ["candidate"] * 5 + ["champion"] * 5
    assert table.column("case_id").to_pylist() == [f"case-{n:05d}" for n in range(5)] * 2
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"
    manifest = published(house.root, "traces").windows[KEY]
    assert manifest.parts[0].file == path.name == f"part-{manifest.parts[0].sha256[:8]}.parquet"
    assert (manifest.parts[0].rows, manifest.parts[0].bytes) == (10, path.stat().st_size)
    assert manifest.schema_id == "tasc-traces-v1"


def test_what_is_read_equals_what_was_published(house, make_rows) -> None:
    rows = make_rows(cases=4, failures=1)
    house.publish_traces(KEY, rows)
    keys = {house.signer.key_id: house.signer.key.public_key}
    held = read_window(house.root, "traces", KEY, keys=keys)
    expected = TRACES.from_rows(sorted(rows, key=lambda row: (row.role, row.profile_id, row.case_id)))
    assert held.equals(expected)
    assert window_keys(house.root, "traces") == (KEY,)


def test_rows_of_another_window_or_table_are_refused(house, make_rows) -> None:
    with pytest.raises(InputError, match="a row belongs to another window"):
        house.publish_traces(KEY, make_rows("w2.r01-0a1b2c3d"))
    with pytest.raises(InputError, match="rows are not those of tasc-attempts-v1"):
        publish(house.root, "attempts", KEY, TRACES.from_rows(make_rows()), sign=house.signer, clock=house.clock)


def test_every_one_of_400_bit_flips_is_detected(house, make_rows) -> None:
    path = house.publish_traces(KEY, make_rows(cases=300))
    sound, source, missed = path.read_bytes(), random.Random(7), 0
    sha256 = published(house.root, "traces").windows[KEY].parts[0].sha256
    for _ in range(400):
        bit = source.randrange(len(sound) * 8)
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        try:
            read_parquet(path, TRACES, sha256=sha256)
            missed += 1
        except PartCorruptError:
            pass
    assert missed == 0
    path.write_bytes(sound)
    assert verify_parts(house.root) == 1


def test_page_checksums_alone_never_let_wrong_values_through(house, make_rows) -> None:
    path = house.publish_traces(KEY, make_rows(cases=300))
    sound, source = path.read_bytes(), random.Random(8)
    expected = read_parquet(path, TRACES)
    footer = int.from_bytes(sound[-8:-4], "little") + 8
    for _ in range(200):
        bit = source.randrange(4 * 8, (len(sound) - footer) * 8)
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        try:
            assert read_parquet(path, TRACES).equals(expected)
        except PartCorruptError:
            continue


@pytest.mark.parametrize("damage", ["cut", "missing", "other-key", "edited", "moved"])
def test_a_damaged_manifest_or_part_is_named_and_never_read(house, make_rows, damage: str) -> None:
    path = house.publish_traces(KEY, make_rows())
    keys = {house.signer.key_id: house.signer.key.public_key}
    manifest = path.with_name("manifest.json")
    if damage == "cut":
        manifest.write_bytes(manifest.read_bytes()[:-20])
    elif damage == "missing":
        path.unlink()
    elif damage == "other-key":
        keys = {house.signer.key_id: SigningKey.generate().public_key}
    elif damage == "edited":
        manifest.write_bytes(manifest.read_bytes().replace(b'"rows":6', b'"rows":7'))
    else:
        shutil.copytree(path.parent, path.parent.with_name("window_key=w9.r01-00000000"))
    with pytest.raises(PartCorruptError) as refused:
        verify_parts(house.root, keys=keys)
    assert "traces/window_key=" in str(refused.value)
    assert "materialize the window's assets again" in str(refused.value)


def ttft(home: Path) -> list[tuple[float]]:
    with connect(home) as session:
        return session.execute(
            "SELECT ttft_ms FROM traces WHERE role = 'champion' ORDER BY window_key, case_id"
        ).fetchall()


def test_an_end_between_any_two_steps_leaves_old_or_new_and_heals(house, make_rows, tmp_path: Path) -> None:
    rows = make_rows(cases=2)
    house.publish_traces(KEY, rows)
    house.build()
    slower = [dataclasses.replace(row, ttft_ms=row.ttft_ms * 3) for row in rows]
    old, new = [(100.0,), (101.0,)], [(300.0,), (303.0,)]
    expected = TRACES.from_rows(sorted(slower, key=lambda row: row.role))
    seen, steps = [], 0
    while True:
        home = tmp_path / f"copy-{steps}"
        shutil.copytree(house.home, home)
        disk = MortalDisk(steps)
        try:
            publish(
                home / "warehouse",
                "traces",
                KEY,
                TRACES.from_rows(slower),
                sign=house.signer,
                clock=house.clock,
                disk=disk,
            )
            build_views(home, clock=house.clock, disk=disk)
        except Stopped:
            steps += 1
            seen.append(ttft(home))
            assert verify_parts(home / "warehouse") == 1
            publish(home / "warehouse", "traces", KEY, TRACES.from_rows(slower), sign=house.signer, clock=house.clock)
            assert read_window(home / "warehouse", "traces", KEY).equals(expected)
            assert not list((home / "warehouse" / "traces").rglob(".tmp-*"))
            continue
        break
    assert steps > 15
    assert all(item in (old, new) for item in seen)
    assert seen[0] == old
    assert ttft(home) == new


def test_a_full_disk_leaves_the_old_state_and_says_what_to_do(house, make_rows) -> None:
    class FullDisk(Disk):
        def sync(self, file: BinaryIO) -> None:
            raise OSError(28, "No space left on device")

    rows = make_rows()
    house.publish_traces(KEY, rows)
    house.build()
    other = [dataclasses.replace(row, ttft_ms=1.0) for row in rows]
    with pytest.raises(
        WarehouseError, match=r"No space left on device.*what was published before still stands.*free space"
    ):
        publish(
            house.root, "traces", KEY, TRACES.from_rows(other), sign=house.signer, clock=house.clock, disk=FullDisk()
        )
    assert ttft(house.home) == [(100.0,), (101.0,), (102.0,)]


def test_a_replaced_part_stays_a_day_and_an_open_session_keeps_answering(house, make_rows) -> None:
    rows = make_rows(cases=1)
    old = house.publish_traces(KEY, rows)
    house.build()
    session = connect(house.home)
    query = "SELECT ttft_ms FROM traces WHERE role = 'champion'"
    assert session.execute(query).fetchall() == [(100.0,)]
    new = house.publish_traces(KEY, [dataclasses.replace(row, ttft_ms=7.0) for row in rows])
    house.build()
    assert session.execute(query).fetchall() == [(100.0,)]
    assert connect(house.home).execute(query).fetchall() == [(7.0,)]
    house.clock.advance(hours=23, minutes=59)
    house.build()
    assert old.exists()
    house.clock.advance(minutes=2)
    house.build()
    assert not old.exists()
    assert new.exists()
    assert connect(house.home).execute(query).fetchall() == [(7.0,)]


def test_a_part_that_comes_back_is_not_deleted(house, make_rows) -> None:
    rows = make_rows(cases=1)
    first = house.publish_traces(KEY, rows)
    house.publish_traces(KEY, [dataclasses.replace(row, ttft_ms=7.0) for row in rows])
    assert house.publish_traces(KEY, rows) == first
    house.clock.advance(hours=25)
    house.build()
    assert first.exists()
    assert [path.name for path in first.parent.glob("part-*")] == [first.name]


def test_rows_that_come_a_few_at_a_time_give_the_same_part(house, make_rows) -> None:
    whole = sorted_rows(TRACES, TRACES.from_rows(make_rows(cases=30)))
    at_once = house.publish_traces(KEY, make_rows(cases=30)).read_bytes()
    pieces = [whole.slice(start, 7) for start in range(0, whole.num_rows, 7)]
    part = publish(house.root, "traces", KEY, iter([*pieces, TRACES.empty()]), sign=house.signer, clock=house.clock)
    assert part.rows == 60
    assert house.root.joinpath("traces", f"window_key={KEY}", part.file).read_bytes() == at_once


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the tests have several row groups."""
    monkeypatch.setattr("tasc_pipeline.warehouse.parquet.row_group_rows", lambda table: 25)


def test_a_part_of_several_row_groups_is_the_same_however_its_rows_come(small_groups, make_rows, tmp_path) -> None:
    whole = sorted_rows(TRACES, TRACES.from_rows(make_rows(cases=30)))
    cuts = {"at-once": 60, "one-by-one": 1, "across-groups": 7, "a-group-each": 25, "more-than-a-group": 40}
    parts = []
    for name, size in cuts.items():
        path = tmp_path / name
        path.touch()
        written = write_parquet(path, TRACES, (whole.slice(start, size) for start in range(0, 60, size)))
        data = path.read_bytes()
        assert (written.rows, written.bytes, written.sha256) == (60, len(data), hashlib.sha256(data).hexdigest())
        parts.append(data)
    assert len(set(parts)) == 1
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [25, 25, 10]
    assert read_parquet(path, TRACES).equals(whole)


def test_a_disk_that_fills_up_among_row_groups_leaves_the_old_state(small_groups, house, make_rows) -> None:
    path = house.publish_traces(KEY, make_rows(cases=1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    try:
        with pytest.raises(WarehouseError, match=r"the disk refused .* what was published before still stands"):
            house.publish_traces(KEY, make_rows(cases=100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {item.name for item in path.parent.iterdir()} == {path.name, "manifest.json"}
    assert verify_parts(house.root) == 1


def test_words_that_mostly_differ_are_stored_plainly_beyond_a_bound(make_rows, tmp_path) -> None:
    rows = TRACES.from_rows(make_rows(cases=1)).take(pa.array([0] * 40_000))
    cases = pa.array([f"case-{number:06d}" for number in range(40_000)])
    rows = rows.set_column(rows.schema.get_field_index("case_id"), TRACES.schema.field("case_id"), cases)
    path = tmp_path / "part"
    path.touch()
    write_parquet(path, TRACES, [rows])
    group = pq.ParquetFile(path).metadata.row_group(0)
    held = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    dictionary = held["case_id"].data_page_offset - held["case_id"].dictionary_page_offset
    assert 0 < dictionary < 1 << 18
    assert "PLAIN" in held["case_id"].encodings
    assert held["case_id"].total_compressed_size < 5 * 40_000
    assert read_parquet(path, TRACES).equals(rows)


def test_ranges_are_kept_of_what_orders_rows_and_of_numbers(house, make_rows) -> None:
    group = pq.ParquetFile(house.publish_traces(KEY, make_rows(cases=3))).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    ranges = {column.path_in_schema: column.statistics for column in columns if column.is_stats_set}
    assert (ranges["window_key"].min, ranges["case_id"].max) == (KEY, "case-00002")
    assert (ranges["ttft_ms"].min, ranges["ttft_ms"].max, ranges["ttft_ms"].null_count) == (50.0, 102.0, 0)
    assert not ranges.keys() & {"trace_id", "model_id", "slices.list.element"}


def test_a_part_of_an_earlier_version_is_read_as_it_is(make_rows, tmp_path) -> None:
    rows = sorted_rows(TRACES, TRACES.from_rows(make_rows(cases=5)))
    path = tmp_path / "part"
    pq.write_table(rows, path, compression="zstd", compression_level=3, write_page_checksum=True)
    assert read_parquet(path, TRACES).equals(rows)


def test_a_null_key_comes_after_every_value() -> None:
    def score(digest: str | None, score_id: str) -> ReportedScoreRow:
        return ReportedScoreRow(
            window_key=KEY,
            source="evaluator-evidence",
            evidence_digest=None if digest is None else "sha256:" + digest * 64,
            profile_id="p",
            case_id="c",
            score_id=score_id,
            score=1.0,
        )

    rows = [score("a", "y"), score("b", "x"), score(None, "w"), score(None, "z")]
    ordered = REPORTED_SCORES.from_rows(rows)
    assert sorted_rows(REPORTED_SCORES, ordered) is ordered
    for places in ([0, 2, 1, 3], [1, 0, 2, 3], [0, 1, 3, 2], [3, 2, 1, 0]):
        mixed = REPORTED_SCORES.from_rows([rows[place] for place in places])
        assert sorted_rows(REPORTED_SCORES, mixed).equals(ordered)


def test_another_publication_goes_through_while_the_rows_of_a_slow_one_are_made(house, make_rows) -> None:
    whole = sorted_rows(TRACES, TRACES.from_rows(make_rows(cases=30)))
    other = "w2.r01-0a1b2c3d"
    folder = house.root / "traces" / f"window_key={KEY}"
    changed = [dataclasses.replace(row, ttft_ms=7.0) for row in make_rows(cases=1)]
    with ThreadPoolExecutor(1) as elsewhere:

        def slow() -> Iterator[pa.Table]:
            yield whole.slice(0, 20)
            (live,) = folder.glob(".tmp-*")
            elsewhere.submit(house.publish_traces, other, make_rows(other)).result(timeout=30)
            elsewhere.submit(house.publish_traces, KEY, changed).result(timeout=30)
            elsewhere.submit(house.build).result(timeout=30)
            assert ttft(house.home)[0] == (7.0,), "the same window, published meanwhile"
            assert list(folder.glob(".tmp-*")) == [live], "what is being written is no leftover"
            yield whole.slice(20)

        part = publish(house.root, "traces", KEY, slow(), sign=house.signer, clock=house.clock)
    assert window_keys(house.root, "traces") == (KEY, other)
    assert read_window(house.root, "traces", KEY).equals(whole), "the last to end counts"
    assert (folder / part.file).read_bytes() == house.publish_traces(KEY, make_rows(cases=30)).read_bytes()
    assert not list(house.root.rglob(".tmp-*"))


def test_only_leftovers_of_writers_that_are_gone_are_removed(house, make_rows) -> None:
    folder = house.publish_traces(KEY, make_rows()).parent
    left, live = folder / ".tmp-part-1", folder / ".tmp-part-2"
    for path in (left, live):
        path.write_bytes(b"half a part")
    with live.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        house.publish_traces(KEY, make_rows())
        assert (left.exists(), live.read_bytes()) == (False, b"half a part")
    house.publish_traces(KEY, make_rows())
    assert not live.exists()


@pytest.mark.parametrize("cases", [3, 100])
def test_rows_that_cannot_be_made_leave_nothing_behind(small_groups, house, make_rows, cases: int) -> None:
    def broken() -> Iterator[pa.Table]:
        yield sorted_rows(TRACES, TRACES.from_rows(make_rows(cases=cases)))
        raise InputError("a record breaks a rule", where="journal", way_out="restore it")

    before = house.publish_traces(KEY, make_rows(cases=1))
    with pytest.raises(InputError, match="a record breaks a rule"):
        publish(house.root, "traces", KEY, broken(), sign=house.signer, clock=house.clock)
    assert {path.name for path in before.parent.iterdir()} == {before.name, "manifest.json"}


def test_rows_that_do_not_follow_each_other_are_refused(house, make_rows) -> None:
    whole = sorted_rows(TRACES, TRACES.from_rows(make_rows(cases=4)))
    for pieces in ([whole.slice(4), whole.slice(0, 4)], [TRACES.from_rows(list(reversed(make_rows(cases=4))))]):
        with pytest.raises(InputError, match="rows are out of the table's order"):
            publish(house.root, "traces", KEY, iter(pieces), sign=house.signer, clock=house.clock)
    assert window_keys(house.root, "traces") == ()


def test_equal_rows_are_counted_however_they_are_cut(make_rows) -> None:
    whole = TRACES.from_rows(make_rows(cases=10))
    cut = [whole.slice(0, 3), TRACES.empty(), whole.slice(3)]
    assert equal_rows([whole], iter(cut)) == 20
    assert equal_rows([], [TRACES.empty()]) == 0
    assert equal_rows([whole], cut[:1]) is None
    assert equal_rows([whole.slice(0, 3)], cut) is None
    assert equal_rows([whole], [whole.slice(1), whole.slice(0, 1)]) is None


def test_groups_of_whole_records_are_smaller() -> None:
    assert (row_group_rows(ENVELOPES), row_group_rows(TRACES)) == (15_360, 122_880)
