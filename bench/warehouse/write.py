"""G9: bytes per row and rows per second of ``traces`` from Arrow, sorted and shuffled, as publication writes them.

Publication checks the order, hashes and syncs; pyarrow's defaults, asked in turn with it, do none of that. The least of the
rounds counts, by the clock and by the processor time of all threads.

Run: python bench/warehouse/write.py [--rows 1000000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.warehouse import synthetic
from bench.warehouse.queries import in_turn
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse.manifests import published
from tasc_pipeline.warehouse.publish import ManifestSigner, publish


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    words = parser.parse_args()
    signer = ManifestSigner(SigningKey.generate(), "bench")
    table = synthetic.traces(0, words.rows)
    rows = table.num_rows
    key = synthetic.window_key(0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, held in (
            ("sorted", table),
            ("shuffled", table.take(pa.array(np.random.default_rng(1).permutation(table.num_rows)))),
        ):
            ours, defaults = in_turn(
                [
                    lambda held=held: publish(root, "traces", key, held, sign=signer, clock=lambda: datetime.now(UTC)),
                    lambda held=held: pq.write_table(held, root / "defaults.parquet"),
                ],
                words.rounds,
            )
            (part,) = published(root, "traces").windows[key].parts
            print(
                f"{name:9} {rows / ours.wall_s:9,.0f} rows/s, {ours.wall_s / defaults.wall_s:4.2f}x pyarrow's defaults   "
                f"cpu {ours.cpu_s:5.2f} s, {ours.cpu_s / defaults.cpu_s:4.2f}x   {part.bytes / part.rows:6.1f} B/row"
            )


if __name__ == "__main__":
    main()
