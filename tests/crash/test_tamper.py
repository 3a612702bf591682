"""Every flipped bit of a sealed journal is detected; none in an unsealed one loses a record silently."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tasc_collector.errors import DigestMismatch, JournalError
from tasc_collector.journal import Journal, RecordKind, scan
from tasc_collector.journal import verify as verify_journal
from tasc_collector.journal.format import SEAL_NAME
from tasc_pipeline.home.windows import APPROVAL, CASE_SET, DECLARATION, LINK, MANIFEST, PLAN
from tasc_pipeline.steps import close, collect, publish, verify
from tests.support.crash_world import BINDING, KEY
from tests.support.memory_disk import MemoryDisk, MemoryFileSystem
from tests.support.window import world

FOLDER = Path("/runs/window-1")
RECORDS = 24


def _journal(*, sealed: bool) -> MemoryDisk:
    """A journal of several segments whose records are small and large."""

    async def run(disk: MemoryDisk) -> None:
        fs = MemoryFileSystem(disk)
        journal = Journal.open(FOLDER, BINDING, KEY, fs=fs, segment_bytes=3000, grow_bytes=2048)
        for number in range(RECORDS):
            await journal.append(list(RecordKind)[number % 8], f"t{number}", {"pad": "x" * (number * 37 % 500)})
        if sealed:
            journal.seal()
        else:
            journal.close()

    disk = MemoryDisk()
    asyncio.run(run(disk))
    return disk


def _sizes(disk: MemoryDisk) -> list[tuple[Path, int]]:
    return sorted((path, len(inode.seen)) for path, inode in disk.names.items() if path.name != "owner.lock")


def _undetected_flips(flips: int, rng: random.Random) -> list[tuple[str, int]]:
    disk = _journal(sealed=True)
    files = _sizes(disk)
    assert len(files) >= 4
    fs, undetected = MemoryFileSystem(disk), []
    assert verify_journal(FOLDER, BINDING, KEY, fs=fs).records == RECORDS
    for _ in range(flips):
        path, size = rng.choices(files, weights=[size for _, size in files])[0]
        bit = rng.randrange(size * 8)
        disk.flip(path, bit)
        try:
            verify_journal(FOLDER, BINDING, KEY, fs=fs)
            undetected.append((path.name, bit))
        except (JournalError, DigestMismatch):
            pass
        disk.flip(path, bit)
    assert verify_journal(FOLDER, BINDING, KEY, fs=fs).records == RECORDS
    return undetected


def test_a_sample_of_flipped_bits_of_a_sealed_journal_is_detected(count: Callable[[str, int], None]) -> None:
    assert _undetected_flips(200, random.Random(1)) == []
    count("flipped bits of sealed journals, all detected", 200)


@pytest.mark.crash
def test_every_flipped_bit_of_a_sealed_journal_is_detected(count: Callable[[str, int], None]) -> None:
    assert _undetected_flips(3_000, random.Random(2)) == []
    count("flipped bits of sealed journals, all detected", 3_000)


@pytest.mark.crash
def test_no_flipped_bit_of_an_unsealed_journal_loses_a_record_silently(count: Callable[[str, int], None]) -> None:
    disk = _journal(sealed=False)
    fs = MemoryFileSystem(disk)
    everything = [record.body_bytes for record in scan(FOLDER, BINDING, KEY, fs=fs)]
    assert len(everything) == RECORDS
    silent = detected = 0
    for path, size in _sizes(disk):
        for bit in range(size * 8):
            if bit % 5:
                continue
            disk.flip(path, bit)
            try:
                found = [record.body_bytes for record in scan(FOLDER, BINDING, KEY, fs=fs)]
                assert found == everything, (path.name, bit)
                silent += 1
            except (JournalError, DigestMismatch):
                detected += 1
            disk.flip(path, bit)
    count("flipped bits of unsealed journals, detected", detected)
    assert silent <= 18 * 8, "only the first bytes of reserved space can look like a torn, empty write"


def _flips_of_a_closed_window(folder: Path, flips: int, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """Flip one bit at a time in everything that a closed and published window left; which flips nobody found."""
    with world(folder, cases=3, warm_up=0) as made:
        key = made.approved_window()
        assert collect.collect(made.home, key, show=lambda _: None).status == "complete"
        publish.publish(made.home, key)
        close.close(made.home, key)
    files = {
        "journals": [*sorted(made.home.run(key).glob("segment-*")), made.home.run(key) / SEAL_NAME],
        "records": [made.home.window(key) / name for name in (DECLARATION, CASE_SET, PLAN, APPROVAL, LINK, MANIFEST)],
        "part manifests": sorted(made.home.warehouse.glob(f"*/window_key={key}/*.json")),
        "Parquet parts": sorted(made.home.warehouse.glob(f"*/window_key={key}/*.parquet")),
    }
    assert all(files.values())
    assert all(finding.sound for finding in verify.findings(made.home, key))
    done: Counter[str] = Counter()
    undetected: list[str] = []
    for number in range(flips):
        kind = list(files)[number % len(files)]
        path = rng.choice(files[kind])
        data = path.read_bytes()
        bit = rng.randrange(len(data) * 8)
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        if all(finding.sound for finding in verify.findings(made.home, key)):
            undetected.append(f"{path.name} bit {bit}")
        path.write_bytes(data)
        done[kind] += 1
    assert all(finding.sound for finding in verify.findings(made.home, key)), "all is as it was"
    return done, undetected


def _report(done: Counter[str], count: Callable[[str, int], None]) -> None:
    for kind, number in done.items():
        count(f"flipped bits of a closed window's {kind}, all detected", number)


def test_a_sample_of_flipped_bits_of_a_closed_window_is_detected(
    tmp_path: Path, count: Callable[[str, int], None]
) -> None:
    done, undetected = _flips_of_a_closed_window(tmp_path, 24, random.Random(3))
    assert undetected == []
    _report(done, count)


@pytest.mark.crash
@pytest.mark.parametrize("seed", [4, 5])
def test_every_flipped_bit_of_a_closed_window_is_detected(
    seed: int, tmp_path: Path, count: Callable[[str, int], None], *, full: bool
) -> None:
    done, undetected = _flips_of_a_closed_window(tmp_path, 2_000 if full else 1_000, random.Random(seed))
    assert undetected == []
    _report(done, count)
