"""Parquet on both sides of evidence: a file that carries it, and the published traces that it is about.

A file of evidence has one column, ``evidence``, with a signed record per row, as text or bytes.

The records are what is signed; a Parquet file is only another way to carry their lines. Other columns are refused, so that
nobody takes a score for signed that stands beside the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasc_collector.errors import InputError
from tasc_pipeline.warehouse.manifests import PublicKeys, read_window
from tasc_pipeline.warehouse.schemas import TRACES

COLUMN: Final = "evidence"
_BATCH_ROWS: Final = 4096


def evidence_rows(path: Path) -> Iterator[bytes]:
    """The records' bytes, in order.

    Raises:
        InputError: no Parquet file, another column than ``evidence``, or a row without a record.
    """
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if names != [COLUMN]:
                raise _refusal(path, f"its columns are {', '.join(names) or 'none'}")
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                column = batch.column(0)
                if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)) or column.null_count:
                    raise _refusal(path, "a row holds no text or bytes")
                yield from (bytes(value) for value in column.cast(pa.binary()).to_pylist())
    except (OSError, pa.ArrowException):
        raise _refusal(path, "it cannot be read as Parquet") from None


def published_trace_ids(root: Path, window_key: str, keys: PublicKeys) -> set[str]:
    """Ids of a window's executions in the published table ``traces``.

    Args:
        root: the warehouse folder.
        window_key: the window.
        keys: collector keys; the manifest's signature is verified.

    Raises:
        PartCorruptError: nothing is published for it, or a part is not what its manifest lists.
    """
    column = read_window(root, TRACES.name, window_key, keys=keys).column("trace_id")
    return {f"trace-{value.hex()}" for value in pc.drop_null(column).to_pylist()}


def _refusal(path: Path, what: str) -> InputError:
    return InputError(
        f"not a Parquet file of evidence: {what}",
        where=str(path),
        rule=f"one column `{COLUMN}` with a signed record per row",
        way_out="write the records of `tasc evidence sign` into that column, or give its NDJSON file",
    )
