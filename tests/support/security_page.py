"""Writes docs/security.md: what is kept, where, in which form; its dictionary comes from the schemas and the tables.

Run: python -m tests.support.security_page. A test compares the file with what this gives, so it cannot go stale.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tasc_collector.contracts.base import Record
from tasc_collector.contracts.catalogue import RECORD_CLASSES, schema_id
from tasc_pipeline.warehouse.columns import Kind
from tasc_pipeline.warehouse.schemas import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "security.md"

HEAD = """# For a security team

One page on what TASC keeps, where, and in which form. The [threat model](threat-model.md) says against whom; [SECURITY](../SECURITY.md)
how to report. The tables at the end are made from the code and compared with it in every test run.

## What is never kept

Prompts, answers, reasoning texts, log-prob tokens, tool arguments, a provider's messages, header values, secrets, and names of
environment variables: in no file, log, exception, metric, database, metadata or picture. Origins of servers stand in the study's own
files (trust policy and endpoints), which you write, and nowhere else. Exceptions of other libraries are replaced where they arise.

You can check it on your own state folder. The file names texts that must not be found, such as parts of your prompts:

```console
$ tasc privacy-scan --needles needles.txt
```

It prints a page: how many files were read and how, what was found where, what could not be decoded. It looks for each text raw, in
UTF-16, hex, base64 at every offset, URL-coded, JSON-escaped, and does so inside Parquet, DuckDB, SQLite and gzip files. The test
suite does the same after whole runs with canaries in every prompt and every answer.

## Where cases and keys live

| what | where | who reads it |
|---|---|---|
| cases: prompts | your own file; the study holds its path | `study new`, `plan` (to count and to make keyed identities) and the step that sends |
| answers | the memory of the sending process, until the answer is read to its end | that process |
| private keys, HMAC keys | `keys/`, mode 0600, folder 0700; the operator's key belongs on another machine | the step that signs |
| a server's credential | an environment variable `TASC_...` of the sending process, or a file under `keys/`; files hold its *reference* | one module, when a call is made |
| public keys | `keys/key-ring.json` | everyone who verifies |
| evidence | `runs/` (journal), `windows/`, `receipts/`, `warehouse/` | analysts; it is content-free |
| Dagster's history | `dagster/` (SQLite) | the UI; aggregates and window keys, never one event per call |

What stands for a prompt or an answer is an HMAC under the study's payload key: without the key nobody can test a guess, and two
studies with two keys cannot be joined. A public SHA-256 stands only for records of our own.

## Timing fingerprints

`token_events` holds when each token came and how many came together, for every call. That is what the product measures, and it is
also what it reveals: the length of every answer, the rhythm of its parts, pauses where a tool or a filter worked. Whoever knows the
candidates for a prompt can sometimes tell which was asked, from length and rhythm alone. So:

- give `token_events` and `envelopes` to those who may see access logs; `traces` aggregates them per call, `decisions` and `gates` per window;
- leave them out of what you hand over: copy `warehouse/traces`, `windows`, `gates`, `decisions` only;
- choose cases that are not personal. Synthetic or consented prompts leave nothing to tell.

## How long

Nothing is deleted by itself but parts that were replaced (after 24 hours). Delete a window by removing `windows/KEY`, `runs/KEY` and its
folders under `warehouse/`; then it can no longer be verified. Delete Dagster's events as in [deployment](deployment.md#retention).
"""  # noqa: E501 - rows of a table
_CLASSES = (
    (Kind.INSTANT, "instants, UTC"),
    (Kind.INTEGER, "counts and nanoseconds"),
    (Kind.NUMBER, "measures"),
    (Kind.FLAG, "yes or no"),
    (Kind.IDENTITY, "keyed identities (HMAC) and digests of our own records"),
)
_TEXT = (Kind.WORD, Kind.TEXT, Kind.WORDS, Kind.BYTES)


def page() -> str:
    """docs/security.md."""
    return "\n".join([HEAD, *_columns(), "", *_records()]) + "\n"


def _columns() -> list[str]:
    lines = [
        "## Dictionary: tables",
        "",
        "Every column that holds text or bytes, with what its words are. All others hold "
        + "; ".join(name for _, name in _CLASSES)
        + ". Units, meanings and nulls of all columns: [tables.md](tables.md).",
        "",
        "| table | columns | column of text | what it says |",
        "|---|---:|---|---|",
    ]
    for table in TABLES.values():
        for place, column in enumerate(item for item in table.columns if item.kind in _TEXT):
            head = f"`{table.name}` | {len(table.columns)}" if place == 0 else " | "
            lines.append(f"| {head} | `{column.name}` | {column.description} |")
    return lines


def _records() -> list[str]:
    lines = [
        "## Dictionary: records",
        "",
        "Every kind of record that is written to a file. Unknown fields are refused, so none can carry more than its schema says;",
        "`tasc validate FILE` checks one.",
        "",
        "| schema id | what it is |",
        "|---|---|",
    ]
    rows = {(identifier, _meaning(cls)) for cls in RECORD_CLASSES if (identifier := schema_id(cls))}
    return [*lines, *(f"| `{identifier}` | {meaning} |" for identifier, meaning in sorted(rows))]


def _meaning(cls: type[Record]) -> str:
    """The first sentence of a class, or of its module where the class says only that it is described there."""
    return _first(cls.__doc__ or "") or _first(sys.modules[cls.__module__].__doc__ or "")


def _first(doc: str) -> str:
    text = " ".join(doc.split("\n\n", 1)[0].split()).replace("``", "`").replace("|", "\\|")
    text = re.sub(r"^`tasc-[a-z0-9-]+`[:;,.]?\s*", "", text)
    text = re.sub(r"\s*;? ?[Ss]ee (the rules of )?this module\.?", "", text)
    return text[:1].upper() + text[1:]


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
