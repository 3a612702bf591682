"""What the scrapes of one server cost: written and signed, read and verified, published, queried.

Run: python bench/probes/scrapes.py [--scrapes 20000] [--histograms]

Times are wall and process time; on a busy machine the second is the one to compare.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tasc_collector.contracts.observations import HistogramValue, MetricValue, ScrapeEntry
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_pipeline.home import Home, keys
from tasc_pipeline.home.lines import AppendedLines
from tasc_pipeline.home.signers import Signer
from tasc_pipeline.steps.metrics import SCRAPES, ScrapeBatch, read_scrapes, scrape_lines, scrapes_digest
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.metric_rows import metric_histograms_table, metric_samples_table, scrape_columns
from tasc_pipeline.warehouse.publish import ManifestSigner, publish

KEY = "bench.r01-00000001"
START_MS = 1_795_953_600_000
METRICS = ("requests-running", "requests-waiting", "kv-cache-usage", "prompt-tokens-total", "generation-tokens-total")
BOUNDS = tuple(0.001 * 2**step for step in range(16))


def now() -> datetime:
    return datetime.now(UTC)


def entry(number: int, *, histograms: bool) -> ScrapeEntry:
    values = tuple(MetricValue(metric=name, labels=(), value=number + 0.5) for name in METRICS)
    held = tuple(
        HistogramValue(
            metric=name,
            labels=(),
            upper_bounds=BOUNDS,
            cumulative_counts=tuple(number * (place + 1) for place in range(17)),
            sum=number * 0.25,
        )
        for name in ("ttft-seconds", "itl-seconds", "e2e-seconds")
    )
    return ScrapeEntry(
        window_key=KEY,
        endpoint_alias="champion",
        endpoint_binding_digest="sha256:" + "0" * 64,
        phase="during",
        scraped_at=timestamp_of_ms(START_MS + 2_000 * number),
        took_ns=1_000_000,
        values=values,
        histograms=held if histograms else (),
        ignored_samples=0,
        non_finite_samples=0,
    )


def timed(label: str, work: Callable[[], Any]) -> Any:
    begun, used = time.perf_counter(), time.process_time()
    result = work()
    print(f"{label:34} {time.perf_counter() - begun:7.3f} s wall   {time.process_time() - used:7.3f} s cpu")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scrapes", type=int, default=20_000)
    parser.add_argument("--histograms", action="store_true", help="three histograms of 17 buckets in every scrape")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        home.keys.mkdir()
        home.window(KEY).mkdir(parents=True)
        keys.create_missing(home, now())
        ring = keys.read_ring(home)
        [public] = [key for key in ring.keys if key.role == "collector"]
        signer = Signer(keys.signing_key(home, "keyfile:collector.key"), public.key_id)
        entries = [entry(number, histograms=words.histograms) for number in range(words.scrapes)]

        def write() -> None:
            with AppendedLines(home.window(KEY) / SCRAPES) as lines:
                batch = ScrapeBatch(lines, KEY, signer, lambda: timestamp_of_ms(time.time_ns() // 1_000_000))
                for item in entries:
                    batch.append(item)
                batch.sign()

        timed(f"{words.scrapes} scrapes written, signed", write)
        timed("verified, for the link", lambda: scrapes_digest(home, KEY, ring))
        scrapes = timed("verified and read, by columns", lambda: scrape_columns(scrape_lines(home, KEY, ring)))
        timed("verified and read, one by one", lambda: read_scrapes(home, KEY, ring))
        samples = timed("rows of metric_samples", lambda: metric_samples_table(KEY, scrapes))
        buckets = timed("rows of metric_histograms", lambda: metric_histograms_table(KEY, scrapes))
        sign = ManifestSigner(signer.key, signer.key_id)
        for name, rows in (("metric_samples", samples), ("metric_histograms", buckets)):
            timed(
                f"{rows.num_rows} {name} published",
                lambda name=name, rows=rows: publish(home.warehouse, name, KEY, rows, sign=sign, clock=now),
            )
        build_views(home.root, clock=now)
        with connect(home.root) as session:
            query = "SELECT metric, quantile_cont(value, 0.95) FROM metric_samples GROUP BY metric"
            timed("a query over all of them", lambda: session.execute(query).fetchall())


if __name__ == "__main__":
    main()
