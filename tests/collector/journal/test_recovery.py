"""What the end of a segment means: torn writes are cut, everything else stops with its offset."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasc_collector.errors import DigestMismatch, JournalCorrupt, JournalError
from tasc_collector.journal import Journal, RecordKind, scan, verify
from tests.support.crash_world import BINDING, KEY

SEGMENT = "segment-000001.tjl"
BODY_BYTES = 700


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal of five records of about 800 bytes, not sealed, with 8 KiB of reserved space."""
    with Journal.open(tmp_path / "run", BINDING, KEY, grow_bytes=8192) as journal:
        for number in range(5):
            journal.append_sync(RecordKind.OUTCOME, f"t{number}", {"pad": "x" * BODY_BYTES})
    return tmp_path / "run"


def offsets(folder: Path) -> list[int]:
    """Start of each record, and the end of the last."""
    starts = [record.offset for record in scan(folder, BINDING, KEY)]
    return [*starts, starts[-1] + starts[1] - starts[0]]


def rewrite(folder: Path, data: bytes) -> None:
    (folder / SEGMENT).write_bytes(data)


def reopened(folder: Path) -> Iterator[str]:
    seen: list[str] = []
    with Journal.open(folder, BINDING, KEY, grow_bytes=8192, on_record=lambda record: seen.append(record.trace_id)):
        pass
    return iter(seen)


def test_a_file_that_ends_anywhere_in_the_last_record_is_cut_there(folder: Path) -> None:
    data = (folder / SEGMENT).read_bytes()
    *_, last, end = offsets(folder)
    for size in range(last, end):
        rewrite(folder, data[:size])
        assert [record.trace_id for record in scan(folder, BINDING, KEY)] == ["t0", "t1", "t2", "t3"]
    for size in (last, last + 1, last + 17, last + 18, last + 100, end - 1):
        rewrite(folder, data[:size])
        assert list(reopened(folder)) == ["t0", "t1", "t2", "t3"]


def test_a_write_torn_at_any_sector_is_cut(folder: Path) -> None:
    """A group of three records of which only a prefix of whole sectors reached the disk."""
    data = (folder / SEGMENT).read_bytes()
    starts = offsets(folder)
    for boundary in range(starts[2] // 512 * 512 + 512, starts[5], 512):
        rewrite(folder, data[:boundary] + bytes(len(data) - boundary))
        whole = [f"t{number}" for number in range(5) if starts[number + 1] <= boundary]
        assert [record.trace_id for record in scan(folder, BINDING, KEY)] == whole
        report = verify(folder, BINDING, KEY)
        assert report.torn_bytes == boundary - starts[len(whole)]
        assert list(reopened(folder)) == whole


def test_after_a_cut_the_journal_goes_on_and_is_whole(folder: Path) -> None:
    data = (folder / SEGMENT).read_bytes()
    rewrite(folder, data[: offsets(folder)[4] + 30])
    with Journal.open(folder, BINDING, KEY) as journal:
        assert journal.recovered.torn_bytes == 30
        assert journal.append_sync(RecordKind.COMPLETE, "t9", {}) == 5
    assert [record.trace_id for record in scan(folder, BINDING, KEY)] == ["t0", "t1", "t2", "t3", "t9"]


def test_a_full_length_last_record_with_a_bad_checksum_stops_with_its_offset(folder: Path) -> None:
    data = bytearray((folder / SEGMENT).read_bytes())
    *_, last, end = offsets(folder)
    data[end - 100] ^= 1
    rewrite(folder, bytes(data))
    with pytest.raises(JournalCorrupt, match=f"offset {last}") as caught:
        list(scan(folder, BINDING, KEY))
    assert caught.value.offset == last


def test_a_last_record_whose_final_partial_sector_alone_is_there_stops(folder: Path) -> None:
    """Zero in the middle is no torn prefix."""
    data = bytearray((folder / SEGMENT).read_bytes())
    *_, last, end = offsets(folder)
    data[last + 20 : end - 10] = bytes(end - 10 - last - 20)
    rewrite(folder, bytes(data))
    with pytest.raises(JournalCorrupt):
        list(scan(folder, BINDING, KEY))


def test_a_zero_record_with_something_after_it_stops(folder: Path) -> None:
    data = bytearray((folder / SEGMENT).read_bytes())
    starts = offsets(folder)
    data[starts[2] : starts[4]] = bytes(starts[4] - starts[2])
    rewrite(folder, bytes(data))
    with pytest.raises(JournalCorrupt) as caught:
        list(scan(folder, BINDING, KEY))
    assert caught.value.offset == starts[2]


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4, 12, 13, 14, 20, 60, 500])
def test_a_bad_middle_stops_with_its_offset(folder: Path, position: int) -> None:
    """The length field too: a length that points behind the file must not make the rest look like a torn tail."""
    original = (folder / SEGMENT).read_bytes()
    starts = offsets(folder)
    for cut in (len(original), starts[5]):
        for bit in range(8):
            data = bytearray(original[:cut])
            data[starts[1] + position] ^= 1 << bit
            rewrite(folder, bytes(data))
            with pytest.raises(JournalCorrupt) as caught:
                list(scan(folder, BINDING, KEY))
            assert caught.value.offset == starts[1]
            with pytest.raises(JournalCorrupt):
                Journal.open(folder, BINDING, KEY)
            assert (folder / SEGMENT).read_bytes() == bytes(data), "a journal that cannot be trusted is left as it is"


def test_something_in_the_reserved_space_stops(folder: Path) -> None:
    data = bytearray((folder / SEGMENT).read_bytes())
    end = offsets(folder)[-1]
    data[end + 2000] = 1
    rewrite(folder, bytes(data))
    with pytest.raises(JournalCorrupt) as caught:
        list(scan(folder, BINDING, KEY))
    assert caught.value.offset == end


def test_another_binding_is_named_as_such(folder: Path) -> None:
    other = replace(BINDING, plan_digest="sha256:" + "d" * 64)
    with pytest.raises(DigestMismatch, match="another plan or window"):
        list(scan(folder, other, KEY))


def test_another_key_stops_at_the_first_record(folder: Path) -> None:
    with pytest.raises(JournalCorrupt, match="journal key") as caught:
        list(scan(folder, BINDING, bytes(32)))
    assert caught.value.offset == 96
    assert len(list(scan(folder, BINDING, None))) == 5


def test_a_missing_segment_stops_with_its_name(tmp_path: Path) -> None:
    with Journal.open(tmp_path, BINDING, KEY, segment_bytes=500, grow_bytes=1024) as journal:
        for number in range(5):
            journal.append_sync(RecordKind.OUTCOME, f"t{number}", {"pad": "x" * BODY_BYTES})
    (tmp_path / "segment-000003.tjl").unlink()
    with pytest.raises(JournalCorrupt, match=r"segment-000003\.tjl"):
        list(scan(tmp_path, BINDING, KEY))


def test_only_the_last_segment_may_end_torn(tmp_path: Path) -> None:
    with Journal.open(tmp_path, BINDING, KEY, segment_bytes=500, grow_bytes=1024) as journal:
        for number in range(3):
            journal.append_sync(RecordKind.OUTCOME, f"t{number}", {"pad": "x" * BODY_BYTES})
    path = tmp_path / "segment-000002.tjl"
    data = path.read_bytes()
    for damaged in (data[:-1], data + b"\0", data[:96], data[:50], b""):
        path.write_bytes(damaged)
        with pytest.raises(JournalCorrupt):
            list(scan(tmp_path, BINDING, KEY))


def test_temporary_files_of_a_dead_process_are_removed_and_never_read(folder: Path) -> None:
    for name in ("segment-000002.tjl.tmp", "seal.json.tmp"):
        (folder / name).write_bytes(b"half")
    assert len(list(reopened(folder))) == 5
    assert sorted(path.name for path in folder.iterdir()) == ["owner.lock", SEGMENT]


def test_random_damage_never_raises_anything_but_a_journal_error(folder: Path) -> None:
    original = (folder / SEGMENT).read_bytes()
    rng = random.Random(5)
    for _ in range(300):
        data = bytearray(original)
        for _ in range(rng.randint(1, 4)):
            start = rng.randrange(len(data))
            data[start : start + rng.randint(1, 600)] = rng.choice((b"", bytes(rng.randint(1, 600)), rng.randbytes(40)))
        rewrite(folder, bytes(data))
        try:
            found = [record.trace_id for record in scan(folder, BINDING, KEY)]
        except (JournalError, DigestMismatch):
            continue
        assert found == ["t0", "t1", "t2", "t3", "t4"][: len(found)]
