"""G9: bytes per row and rows per second of ``traces`` from Arrow, sorted and shuffled, as publication writes them.

Run: python bench/warehouse/write.py [--rows 1000000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.warehouse import synthetic
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse.publish import ManifestSigner, publish


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    signer = ManifestSigner(SigningKey.generate(), "bench")
    table = synthetic.traces(0, rows)
    key = synthetic.window_key(0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, held in (
            ("sorted", table),
            ("shuffled", table.take(pa.array(np.random.default_rng(1).permutation(table.num_rows)))),
        ):
            best, cpu, part = 1e9, 1e9, None
            for _ in range(3):
                start, burnt = time.perf_counter(), time.process_time()
                part = publish(root, "traces", key, held, sign=signer, clock=lambda: datetime.now(UTC))
                best, cpu = min(best, time.perf_counter() - start), min(cpu, time.process_time() - burnt)
            assert part is not None
            burnt = time.process_time()
            pq.write_table(held, root / "defaults.parquet")
            ratio = cpu / (time.process_time() - burnt)
            print(
                f"{name:9} {part.rows / best:12,.0f} rows/s  cpu {cpu:5.2f} s, {ratio:4.2f}x pyarrow's defaults  "
                f"{part.bytes / part.rows:6.1f} B/row"
            )


if __name__ == "__main__":
    main()
