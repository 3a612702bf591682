"""G10 and G11: the twelve questions over windows as the product leaves them and as one part, against a sorted reference.

Windows are published one by one, and what is due is compacted after each, as the product does. Prints what that cost, then
rows per second and peak memory of compacting everything, then each question's time as ratios to the same question on the
reference (one sorted file per table, made by DuckDB in the same run). The three are asked in turn, so that whatever else
the machine does meets all of them; the least of the repeats counts, by the clock and by the processor time of all threads.

Run: python bench/warehouse/queries.py [--rows 1000000] [--windows 100] [--repeats 5] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.warehouse import synthetic
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse import sql
from tasc_pipeline.warehouse.compaction import compact, compact_due
from tasc_pipeline.warehouse.database import build_views, connect
from tasc_pipeline.warehouse.manifests import Source, published
from tasc_pipeline.warehouse.publish import ManifestSigner, publish
from tasc_pipeline.warehouse.schemas import TABLES
from tasc_pipeline.warehouse.views import sql_text

SIGNER = ManifestSigner(SigningKey.generate(), "bench")
EVENTS = 20
"""Token events per execution; the events table has as many rows as traces, from a twentieth of its executions."""


def clock() -> datetime:
    return datetime.now(UTC)


def peak_gb() -> float:
    """Peak resident memory of this process since its program started; ``ru_maxrss`` would count its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e6


class Took(NamedTuple):
    """Least time of several: by the clock, and of all threads of this process."""

    wall_s: float
    cpu_s: float


def in_turn(works: Sequence[Callable[[], object]], repeats: int) -> list[Took]:
    """Time several pieces of work, one after the other and again."""
    best = [Took(float("inf"), float("inf"))] * len(works)
    for _ in range(repeats):
        for place, work in enumerate(works):
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            now = Took(time.perf_counter() - wall, time.process_time() - cpu)
            best[place] = Took(*map(min, best[place], now))
    return best


def fill(home: Path, rows: int, windows: int) -> None:
    root, each = home / "warehouse", rows // windows
    published_s, compacted_s, longest_s, written = 0.0, 0.0, 0.0, 0

    def watch(what: str, total: int) -> Callable[[int], None]:
        nonlocal written
        written += total
        return lambda more: None

    for number in range(windows):
        key = synthetic.window_key(number)
        traces = synthetic.traces(number, each)
        events = synthetic.token_events(number, max(each // EVENTS, 2), EVENTS)
        start = time.process_time()
        publish(root, "traces", key, traces, sign=SIGNER, clock=clock)
        publish(root, "token_events", key, events, sign=SIGNER, clock=clock)
        middle = time.process_time()
        compact_due(root, sign=SIGNER, clock=clock, watch=watch)
        took = time.process_time() - middle
        published_s, compacted_s, longest_s = published_s + middle - start, compacted_s + took, max(longest_s, took)
    build_views(home, clock=clock)
    held = [source for name in TABLES for source in published(root, name).sources(root, name)]
    print(
        f"{rows:,} rows of each table in {windows} windows: {len(held)} parts; cpu of publishing {published_s:.1f} s, of "
        f"compacting what was due {compacted_s:.1f} s, at most {longest_s:.2f} s after one window; each row was written "
        f"again {written / (2 * rows):.2f} times",
        flush=True,
    )


def reference(home: Path) -> duckdb.DuckDBPyConnection:
    """Views over one sorted file per table."""
    sources: dict[str, list[Source]] = {}
    for name in ("traces", "token_events"):
        table = TABLES[name]
        files = [str(item.path) for item in published(home / "warehouse", name).sources(home / "warehouse", name)]
        target = home / "warehouse" / f"reference-{name}.parquet"
        with duckdb.connect() as session:
            session.execute("SET memory_limit = '4GB'")
            session.execute(
                f"COPY (SELECT * FROM read_parquet({files}, hive_partitioning = false)"  # noqa: S608 - our own names
                f" ORDER BY {', '.join(table.sort_by)})"
                f" TO '{target}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)"
            )
        sources[name] = [Source(target, table.schema_id, 0, "", None)]
    session = duckdb.connect()
    session.execute(f"SET file_search_path = '{home}'")
    session.execute(sql_text(sources, home))
    return session


def copied(home: Path, name: str) -> Path:
    """Another state folder with the same warehouse, by hard links."""
    other = home.parent / name
    shutil.copytree(home / "warehouse", other / "warehouse", copy_function=os.link)
    return other


def asked(session: duckdb.DuckDBPyConnection, name: str, key: str | None) -> Callable[[], object]:
    return lambda: sql.ask(session, f"@{name}", window_key=key).fetchall()


def compact_here(home: str, name: str) -> None:
    """Compact one table and print this process's peak memory."""
    compact(Path(home) / "warehouse", name, sign=SIGNER, clock=clock)
    print(peak_gb())


def compact_apart(home: Path, name: str) -> tuple[float, float]:
    """Seconds and peak GB of compacting one table, in a process of its own."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from bench.warehouse.queries import compact_here; compact_here(*sys.argv[2:])"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parents[2]), str(home), name]
    start = time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, float(ran.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        home = Path(folder) / "published"
        fill(home, words.rows, words.windows)
        compacted = copied(home, "compacted")
        for name in ("traces", "token_events"):
            took, peak = compact_apart(compacted, name)
            (source,) = published(compacted / "warehouse", name).sources(compacted / "warehouse", name)
            metadata = pq.ParquetFile(source.path).metadata
            print(
                f"compaction of {name}: {metadata.num_rows / took:,.0f} rows/s, peak {peak:.2f} GB, "
                f"{metadata.num_rows / metadata.num_row_groups:,.0f} rows/row group, "
                f"{source.path.stat().st_size / metadata.num_rows:.1f} B/row",
                flush=True,
            )
        build_views(compacted, clock=clock)
        with reference(home) as best, connect(home) as parts, connect(compacted) as few:
            print(f"{'':24} {'reference':>17} {'as left':>16} {'compacted':>16}")
            print(f"{'question':24} {'wall s':>8} {'cpu s':>8} {'wall':>8} {'cpu':>7} {'wall':>8} {'cpu':>7}")
            last = synthetic.window_key(words.windows - 1)
            for name, key in [*((question.name, None) for question in sql.questions()), ("latency", last)]:
                ways = [asked(session, name, key) for session in (best, parts, few)]
                first, *others = in_turn(ways, words.repeats)
                ratios = (f"{each.wall_s / first.wall_s:7.2f}x {each.cpu_s / first.cpu_s:6.2f}x" for each in others)
                shown = name if key is None else f"{name}, one window"
                print(f"{shown:24} {first.wall_s:8.3f} {first.cpu_s:8.3f} {' '.join(ratios)}", flush=True)
        print(f"peak of this process {peak_gb():.2f} GB")


if __name__ == "__main__":
    main()
