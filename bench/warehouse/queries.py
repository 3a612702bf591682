"""G10 and G11: the twelve questions over windows as published and as compacted, against a freshly sorted reference.

Prints seconds of each question as ratios to the same question on the reference (one sorted file per table, made by
DuckDB in the same run), then rows per second and peak memory of compaction.

Run: python bench/warehouse/queries.py [--rows 1000000] [--windows 100] [--folder DIR]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.warehouse import synthetic
from tasc_collector.signing import SigningKey
from tasc_pipeline.warehouse import sql
from tasc_pipeline.warehouse.compaction import compact
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


def seconds(work: Callable[[], object], *, repeats: int = 3) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def fill(home: Path, rows: int, windows: int) -> None:
    root, each = home / "warehouse", rows // windows
    for number in range(windows):
        key = synthetic.window_key(number)
        publish(root, "traces", key, synthetic.traces(number, each), sign=SIGNER, clock=clock)
        events = synthetic.token_events(number, max(each // EVENTS, 2), EVENTS)
        publish(root, "token_events", key, events, sign=SIGNER, clock=clock)
    build_views(home, clock=clock)


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


def ask_all(session: duckdb.DuckDBPyConnection) -> dict[str, float]:
    return {
        question.name: seconds(lambda name=question.name: sql.ask(session, f"@{name}").fetchall())
        for question in sql.questions()
    }


def one_window(session: duckdb.DuckDBPyConnection, key: str) -> float:
    return seconds(lambda: sql.ask(session, "@latency", window_key=key).fetchall(), repeats=5)


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
    parser.add_argument("--folder", type=Path)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        home = Path(folder)
        took = seconds(lambda: fill(home, words.rows, words.windows), repeats=1)
        print(f"{words.rows:,} rows in {words.windows} windows made and published in {took:.0f} s")
        last = synthetic.window_key(words.windows - 1)
        with reference(home) as session:
            best = ask_all(session)
            best_window = one_window(session, last)
        with connect(home) as session:
            parts, parts_window = ask_all(session), one_window(session, last)
        for name in ("traces", "token_events"):
            took, peak = compact_apart(home, name)
            (source,) = published(home / "warehouse", name).sources(home / "warehouse", name)
            metadata = pq.ParquetFile(source.path).metadata
            print(
                f"compaction of {name}: {metadata.num_rows / took:,.0f} rows/s, peak {peak:.2f} GB, "
                f"{metadata.num_rows / metadata.num_row_groups:,.0f} rows/row group, "
                f"{source.path.stat().st_size / metadata.num_rows:.1f} B/row"
            )
        build_views(home, clock=clock)
        with connect(home) as session:
            compacted, compacted_window = ask_all(session), one_window(session, last)
        print(f"{'question':24} {'reference s':>11} {'as published':>12} {'compacted':>10}")
        for name, time_ in best.items():
            print(f"{name:24} {time_:11.3f} {parts[name] / time_:11.2f}x {compacted[name] / time_:9.2f}x")
        print(
            f"{'one window':24} {best_window:11.3f} {parts_window / best_window:11.2f}x "
            f"{compacted_window / best_window:9.2f}x"
        )
        print(f"peak of this process {peak_gb():.2f} GB")


if __name__ == "__main__":
    main()
