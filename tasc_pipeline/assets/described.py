"""What assets share: the columns of the tables that they write, and the one condition under which they run by themselves."""

from __future__ import annotations

from typing import Any

import dagster as dg

from tasc_pipeline.warehouse.columns import SQL_TYPES, Table

WHEN_CLOSED = (
    dg.AutomationCondition.missing()
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.in_progress()
    & ~dg.AutomationCondition.execution_failed()
    & dg.AutomationCondition.all_deps_blocking_checks_passed()
).with_label("missing, and its window is closed and sound")
"""Only on pure, local, free assets; never on one that sends."""
WHEN_ASSESSED = (dg.AutomationCondition.any_deps_updated() & ~dg.AutomationCondition.in_progress()).with_label(
    "a window was assessed since"
)
"""Of the catalogue, which has no partitions."""


def columns(table: Table, *others: Table) -> dict[str, Any]:  # Any: whatever Dagster takes as a metadata value
    """Name and columns of the table that an asset writes, with type, unit and description; of further tables likewise."""
    return {
        "dagster/table_name": table.name,
        "dagster/column_schema": _schema(table),
        **{f"columns_of_{other.name}": _schema(other) for other in others},
    }


def _schema(table: Table) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                type=SQL_TYPES[column.kind],
                description=column.comment,
                constraints=dg.TableColumnConstraints(nullable=column.nullable),
            )
            for column in table.columns
        ],
        constraints=dg.TableConstraints(other=[f"sorted by {', '.join(table.sort_by)}"]),
    )
