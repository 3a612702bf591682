"""What one more window costs when there are many: publication, views, opening a session, with compaction as it is due.

Run: python bench/warehouse/many_windows.py [--windows 20000] [--rows 20] [--never-compact]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.warehouse import synthetic
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse.compaction import compact_due
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.manifests import window_keys
from tasc_pipeline.warehouse.publish import ManifestSigner, publish

A_DAY = 256
"""Windows after which a day is taken to have passed: the clock that deletes what was replaced goes on."""


def now() -> datetime:
    return datetime.now(UTC)


def measure(label: str, home: Path) -> None:
    start = time.perf_counter()
    keys = window_keys(home / "warehouse", "traces")
    listed = time.perf_counter()
    build_views(home, clock=now)
    built = time.perf_counter()
    with connect(home) as session:
        opened = time.perf_counter()
        session.execute("SELECT count(*) FROM traces").fetchall()
        counted = time.perf_counter()
    print(
        f"{label:12} {len(keys):6} keys listed {listed - start:6.2f} s   views {built - listed:6.2f} s   "
        f"open {opened - built:6.2f} s   count {counted - opened:6.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--never-compact", action="store_true")
    words = parser.parse_args()
    signer = ManifestSigner(SigningKey.generate(), "bench")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        start = time.perf_counter()
        for number in range(words.windows):
            rows = synthetic.traces(number, words.rows)
            publish(home / "warehouse", "traces", synthetic.window_key(number), rows, sign=signer, clock=now)
            if not words.never_compact:
                compact_due(home / "warehouse", sign=signer, clock=now)
                if number % A_DAY == A_DAY - 1:
                    build_views(home, clock=lambda: now() + timedelta(hours=25))
        print(f"{words.windows} windows published, {1000 * (time.perf_counter() - start) / words.windows:.1f} ms each")
        measure("all windows", home)


if __name__ == "__main__":
    main()
