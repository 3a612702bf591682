"""Writes docs/analysis.md and docs/tables.md from the questions, the schemas and the sample warehouse.

Run: python -m tests.support.analysis_docs. A test compares the files with what this gives, so they cannot go stale.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb

from tasc_pipeline.warehouse import connect, sql
from tasc_pipeline.warehouse.columns import SQL_TYPES
from tasc_pipeline.warehouse.schemas import TABLES
from tasc_pipeline.warehouse.views import DERIVED
from tests.support import sample_warehouse

DOCS = Path(__file__).parents[2] / "docs"
SHOWN = 8
"""Rows of a result that the page shows."""

ORDER = (
    "coverage",
    "latency",
    "ratios",
    "itl-by-length-and-hour",
    "itl-pooled",
    "failures",
    "collector-delay",
    "fairness",
    "worst-pairs",
    "replicas",
    "cost",
    "trend",
)

HEAD = """# Analysis in SQL

Every window leaves Parquet, and DuckDB views over it. Nothing here holds a prompt, an answer, an address or a secret.

Four ways in; none blocks a run or is blocked by one. The views only read. SQL of your own may read and write files of your own
(`read_csv`, `COPY`), as everywhere in DuckDB:

```sh
tasc sql                                  # a prompt on the views
tasc sql @latency --window KEY            # a named question; --csv, or --parquet OUT for a file
cd .tasc && duckdb -init tasc.sql         # DuckDB's own shell; warehouse.duckdb holds the same views
```

```python
from tasc_pipeline.warehouse import connect; con = connect(".tasc")
```

A session sees what was published when it was opened, and goes on answering from it for 24 hours after a window was
published again. A copy of the folder works wherever it is: paths hang on the folder. `tasc sql --verify` checks every
byte and every signature. All views and columns are in [tables.md](tables.md), and as comments in DuckDB itself:
`SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal`.

## Before the first query

- **Null is unknown, never zero.** A latency that was not observed, a count that the provider did not report, a cost
  that nobody modeled: all null. `avg` and `quantile_cont` leave them out; `coalesce(x, 0)` would invent a fast call.
- **Every planned execution has a row** in `traces`: `accepted`, `not_sent` or `not_attempted`. Filter on
  `status = 'success'` for latencies, and say how many rows that left out (`@coverage`).
- **All latencies start at the first byte written.** Waiting in the lane (`queue_ms`), connecting and TLS are columns of
  their own and in none of them.
- **Two p95 that are not the same.** `itl_p95_ms` in `traces` is the 95th percentile of the gaps of *one call*; its own
  percentile over calls says how uneven a stream feels, each call counting once (`@itl-by-length-and-hour`). The 95th
  percentile over *pooled gaps* in `token_events` says how long a user waits for a next token, each gap counting once,
  so long answers weigh more (`@itl-pooled`). Never average per-call percentiles.
- **Compare in pairs.** `paired_deltas` sets champion and candidate of the same case and replicate side by side. Medians
  of ratios are not ratios of medians; the verdict's intervals come from the assessment (`gates`), which resamples
  groups of cases, not pairs.
- **Answers of different length are different work.** Look at `@fairness` before believing an E2E ratio.

The figures below come from a small made-up warehouse of two windows: a champion (vLLM 0.26.0) and a candidate (0.33.0)
whose first token comes 20 % earlier and whose stream is 10 % slower.
"""


def analysis_page(session: duckdb.DuckDBPyConnection) -> str:
    """docs/analysis.md."""
    known = {question.name: question for question in sql.questions()}
    parts = [HEAD]
    for place, name in enumerate(ORDER, start=1):
        question = known[name]
        result = sql.ask(session, f"@{name}")
        names = [column for column, _ in sql.column_types(result)]
        rows = result.fetchall()
        more = f"\n\n… and {len(rows) - SHOWN} more rows." if len(rows) > SHOWN else ""
        query = question.query.split("\n", 1)[1].strip()
        parts.append(
            f"## {place}. {question.title}\n\n`tasc sql @{name}`\n\n```sql\n{query}\n```\n\n"
            f"{sql.markdown_table(names, rows[:SHOWN])}{more}\n"
        )
    return "\n".join(parts)


def tables_page() -> str:
    """docs/tables.md."""
    parts = [
        (
            "# Tables and views\n\nEach table is one row dataclass in `tasc_pipeline/warehouse`; this page is made "
            "from them. A column that may be null says so. Identities are 32 bytes in Parquet and text in the view.\n"
        )
    ]
    for table in TABLES.values():
        lines = ["| column | type | unit | null | meaning |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| `{column.name}` | {SQL_TYPES[column.kind]} | {column.unit} | {'yes' if column.nullable else ''} | "
            f"{column.description} |"
            for column in table.columns
        ]
        head = f"## {table.name}\n\n{table.description} Schema `{table.schema_id}`."
        parts.append(f"{head}\n\n" + "\n".join(lines) + "\n")
    for view in DERIVED:
        lines = ["| column | meaning |", "| --- | --- |"]
        lines += [f"| `{name}` | {comment} |" for name, comment in view.columns]
        parts.append(f"## {view.name}\n\n{view.description} A view.\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sample_warehouse.build(Path(folder))
        with connect(folder) as session:
            (DOCS / "analysis.md").write_text(analysis_page(session))
    (DOCS / "tables.md").write_text(tables_page())


if __name__ == "__main__":
    main()
