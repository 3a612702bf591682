"""Records per second that a resume reads from a journal of a million records (goal G7).

usage: python bench/journal/scan.py [--records 1000000] [--folder F]
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
    """Time of one SHA-256 over 400 bytes, best of five: tells a busy machine from a slow reader."""
    data, best = bytes(400), 1.0
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(20_000):
            hashlib.sha256(data).digest()
        best = min(best, (time.perf_counter() - start) / 20_000)
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
        best = best_of_cpu = 0.0
        for _ in range(3):
            start, start_cpu = time.perf_counter(), time.process_time()
            count = sum(1 for _ in scan(folder / "run", BINDING, KEY if with_mac else None))
            best = max(best, count / (time.perf_counter() - start))
            best_of_cpu = max(best_of_cpu, count / (time.process_time() - start_cpu))
            assert count == arguments.records
        print(
            json.dumps(
                {
                    "scan": "chain and MAC" if with_mac else "chain",
                    "records_per_s": round(best),
                    "records_per_cpu_s": round(best_of_cpu),
                    "sha256_of_400_bytes_us": round(sha256_seconds() * 1e6, 2),
                    "goal": GOALS[with_mac],
                    "met": best >= GOALS[with_mac],
                }
            )
        )
    print(json.dumps({"peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)}))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
