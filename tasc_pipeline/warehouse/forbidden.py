"""Columns that a published part has and its table does not declare: the way in which a prompt or an answer could come in.

Readers refuse such a part anyway; this says which column of which table it is, by name alone.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasc_pipeline.warehouse.errors import PartCorruptError
from tasc_pipeline.warehouse.manifests import compacted_groups
from tasc_pipeline.warehouse.publish import window_folder
from tasc_pipeline.warehouse.schemas import TABLES


def undeclared_columns(root: Path, window_key: str) -> list[str]:
    """``table.column`` of every column that is not declared, in every part of a window, listed or not, and in every
    compacted part that covers it.

    Args:
        root: the warehouse folder.
        window_key: the window.

    Raises:
        PartCorruptError: a part cannot be read.
    """
    found: list[str] = []
    for table in TABLES.values():
        declared = set(table.schema.names)
        folders = [window_folder(root, table.name, window_key)]
        for folder, group in compacted_groups(root, table.name):
            folders += [folder] * any(item.window_key == window_key for item in group.covers)
        for part in sorted(path for folder in folders for path in folder.glob("part-*.parquet")):
            try:
                names = pq.read_schema(part).names
            except (OSError, pa.ArrowException):
                raise PartCorruptError(
                    "the part cannot be read",
                    where=f"{table.name}/{part.parent.name}/{part.name}",
                    way_out="materialize the window's assets again: the part is derived from the journal",
                ) from None
            found += [f"{table.name}.{name}" for name in names if name not in declared]
    return found
