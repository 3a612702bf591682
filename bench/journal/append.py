"""Durable leases per second, as ratios to the disk in the same run (goal G5).

Raw figures are a bare file: append and fdatasync of one, 32 and 128 records of the same size; and one file per record
(temporary name, fsync, rename, fsync of the folder). Ours are tasks that each await one lease after another.

usage: python bench/journal/append.py [--folder F] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from tasc_collector.canonical import canonical_bytes
from tasc_collector.journal import Journal, JournalBinding, RecordKind, record_bytes

BINDING = JournalBinding(
    "study-1", "sha256:" + "a" * 64, "sha256:" + "b" * 64, "w.r1-00000000", 0, "sha256:" + "c" * 64
)
KEY = bytes(range(32))
TRACE = "sha256:" + "e" * 64
LEASE = {
    "attemptId": "sha256:" + "d" * 64,
    "attemptNumber": 1,
    "claimId": "f" * 64,
    "issuedAt": "2026-01-31T09:30:00.000Z",
    "expiresAt": "2026-01-31T09:31:00.000Z",
    "preparedDeadlineMs": 60_000,
    "httpLimitsDigest": "sha256:" + "9" * 64,
    "responseByteLimit": 1_048_576,
}
RECORD = b"r" * record_bytes(TRACE, canonical_bytes(LEASE))
GOALS = {1: 0.55, 32: 0.55, 128: 0.40}
FILE_PER_RECORD_GOAL = 20.0


def raw_group(folder: Path, group: int, commits: int) -> float:
    """Records per second of a bare append and fdatasync."""
    descriptor = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC, 0o600)
    data = RECORD * group
    start = time.perf_counter()
    for _ in range(commits):
        os.write(descriptor, data)
        os.fdatasync(descriptor)
    seconds = time.perf_counter() - start
    os.close(descriptor)
    return group * commits / seconds


def file_per_record(folder: Path, records: int) -> float:
    """Records per second of one file for each."""
    target = folder / "files"
    target.mkdir()
    directory = os.open(target, os.O_RDONLY)
    start = time.perf_counter()
    for number in range(records):
        temporary = target / f".{number}"
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(descriptor, RECORD)
        os.fsync(descriptor)
        os.close(descriptor)
        temporary.rename(target / f"{number}.json")
        os.fsync(directory)
    seconds = time.perf_counter() - start
    os.close(directory)
    shutil.rmtree(target)
    return records / seconds


async def ours(folder: Path, waiters: int, each: int) -> tuple[float, float]:
    """Records per second and the mean group, of ``waiters`` tasks."""
    with Journal.open(folder / "run", BINDING, KEY) as journal:

        async def lease() -> None:
            for _ in range(each):
                await journal.append(RecordKind.LEASE, TRACE, LEASE)

        start = time.perf_counter()
        await asyncio.gather(*(lease() for _ in range(waiters)))
        seconds = time.perf_counter() - start
        group = waiters * each / journal.groups
    shutil.rmtree(folder / "run")
    return waiters * each / seconds, group


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    rows: dict[int, list[tuple[float, float, float]]] = {1: [], 32: [], 128: []}
    files: list[float] = []
    for _ in range(arguments.rounds):
        files.append(file_per_record(folder, 100))
        for waiters, results in rows.items():
            raw = raw_group(folder, waiters, 200)
            rate, group = asyncio.run(ours(folder, waiters, {1: 200, 32: 400, 128: 200}[waiters]))
            results.append((raw, rate, group))
    shutil.rmtree(folder)
    for waiters, results in rows.items():
        ratio = statistics.median(rate / raw for raw, rate, _ in results)
        report = {
            "waiters": waiters,
            "record_bytes": len(RECORD),
            "raw_per_s": round(statistics.median(raw for raw, _, _ in results)),
            "journal_per_s": round(statistics.median(rate for _, rate, _ in results)),
            "mean_group": round(statistics.median(group for _, _, group in results), 1),
            "ratio": round(ratio, 3),
            "goal": GOALS[waiters],
            "met": ratio >= GOALS[waiters],
        }
        print(json.dumps(report))
    times = statistics.median(rate / single for (_, rate, _), single in zip(rows[32], files, strict=True))
    print(
        json.dumps(
            {
                "file_per_record_per_s": round(statistics.median(files)),
                "journal_32_over_file_per_record": round(times, 1),
                "goal": FILE_PER_RECORD_GOAL,
                "met": times >= FILE_PER_RECORD_GOAL,
            }
        )
    )


if __name__ == "__main__":
    main()
