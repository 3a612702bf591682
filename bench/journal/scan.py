"""Records per second that a resume reads from a journal of a million records (goal G7).

usage: python bench/journal/scan.py [--records 1000000] [--folder F]

Three rates are printed: of the best whole pass, the same by the CPU that it took, and of the best stretch of 500 records
within a pass, which a few milliseconds of another program's work cannot spoil; on an idle machine they are nearly equal.
One record costs one SHA-256 (the chain), with the MAC three, so the record's time in units of that hash shows how much
is left to gain.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path

from tasc_collector.journal import Journal, JournalBinding, RecordKind, scan

BINDING = JournalBinding(
    "study-1", "sha256:" + "a" * 64, "sha256:" + "b" * 64, "w.r1-00000000", 0, "sha256:" + "c" * 64
)
KEY = bytes(range(32))
TRACE = "sha256:" + "e" * 64
BODY = {"attemptId": "sha256:" + "d" * 64, "claimId": "f" * 64, "issuedAt": "2026-01-31T09:30:00.000Z", "n": 1}
STRETCH = 500
GOALS = {False: 350_000, True: 200_000}


def write(folder: Path, records: int) -> float:
    """Make the journal; returns the seconds it took."""
    start = time.perf_counter()

    async def run() -> None:
        with Journal.open(folder, BINDING, KEY) as journal:
            for number in range(records):
                journal.enqueue(RecordKind.OUTCOME, TRACE, BODY)
                if number % 4096 == 0:
                    await journal.flush()
            await journal.flush()

    asyncio.run(run())
    return time.perf_counter() - start


def sha256_seconds() -> float:
    """Time of one SHA-256 over 400 bytes, of the best stretch: what a record costs at least."""
    data, best = bytes(400), 1.0
    for _ in range(100):
        start = time.perf_counter()
        for _ in range(STRETCH):
            hashlib.sha256(data).digest()
        best = min(best, (time.perf_counter() - start) / STRETCH)
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--records", type=int, default=1_000_000)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    seconds = write(folder / "run", arguments.records)
    size = sum(path.stat().st_size for path in (folder / "run").glob("*.tjl"))
    print(json.dumps({"written": arguments.records, "seconds": round(seconds, 1), "bytes": size}))
    for with_mac in (False, True):
        best, of_cpu, undisturbed = 0.0, 0.0, 0.0
        for _ in range(3):
            start = mark = time.perf_counter()
            cpu = time.process_time()
            count = 0
            for count, _record in enumerate(scan(folder / "run", BINDING, KEY if with_mac else None), start=1):
                if count % STRETCH == 0:
                    mark, before = time.perf_counter(), mark
                    undisturbed = max(undisturbed, STRETCH / (mark - before))
            best = max(best, count / (time.perf_counter() - start))
            of_cpu = max(of_cpu, count / (time.process_time() - cpu))
            assert count == arguments.records
        sha256_us = sha256_seconds() * 1e6
        print(
            json.dumps(
                {
                    "scan": "chain and MAC" if with_mac else "chain",
                    "records_per_s": round(best),
                    "records_per_cpu_s": round(of_cpu),
                    "records_per_s_undisturbed": round(undisturbed),
                    "record_in_sha256_of_400_bytes": round(1e6 / undisturbed / sha256_us, 1),
                    "sha256_of_400_bytes_us": round(sha256_us, 2),
                    "goal": GOALS[with_mac],
                    "met": best >= GOALS[with_mac],
                    "met_undisturbed": undisturbed >= GOALS[with_mac],
                }
            )
        )
    print(json.dumps({"peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)}))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
