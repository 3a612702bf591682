"""What assets share: the columns of what they write, and the one condition under which they run by themselves.

An asset that writes tables of the warehouse has their columns. One that writes a record has the columns of the rows that
its metadata show of it.
"""

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


def shown(*columns: tuple[str, str, str]) -> dg.TableSchema:
    """Columns of the rows that an asset without a table shows of its record.

    Args:
        columns: name, SQL type and description of each.
    """
    return dg.TableSchema(columns=[dg.TableColumn(name, kind, text) for name, kind, text in columns])


TARGETS = shown(
    ("profile", "VARCHAR", "Execution profile of the study."),
    ("role", "VARCHAR", "champion or candidate."),
    ("endpoint", "VARCHAR", "Alias of the endpoint; its address stays in the study."),
    ("runtime", "VARCHAR", "Runtime and build that the endpoint's wire is read as."),
    ("route", "VARCHAR", "Route of the calls, and how their answers are framed."),
    ("lane_width", "BIGINT", "Calls that may be open at this endpoint at once."),
)
"""One row per target of a plan."""
CLOSED = shown(
    ("planned", "BIGINT", "Executions that the plan has; always the sum of the next three."),
    ("accepted", "BIGINT", "Executions with an envelope: success, failure or sent_unknown."),
    ("not_sent", "BIGINT", "Executions of which certainly no byte was sent; no envelope, a collector's fault."),
    ("not_attempted", "BIGINT", "Executions that were not begun, with the reason."),
    ("trace_set_digest", "VARCHAR", "Digest over the window's envelopes."),
    ("journal_head", "VARCHAR", "Last link of the journal's hash chain."),
    ("manifest_digest", "VARCHAR", "Digest of the manifest; none where the purpose has no manifest."),
    ("closed_at", "TIMESTAMP WITH TIME ZONE", "When the window was closed."),
)
"""What the signed link of a closed window binds; one row."""
RECEIPTS_SHOWN = shown(
    ("endpoint", "VARCHAR", "Study and alias of the endpoint."),
    ("runtime", "VARCHAR", "Runtime and build that the study declares."),
    ("capability", "VARCHAR", "What was probed."),
    ("state", "VARCHAR", "supported, unsupported or unknown."),
    ("reason", "VARCHAR", "Why, in one word."),
    ("age_h", "DOUBLE", "Hours since the observation. [h]"),
    ("valid_until", "TIMESTAMP WITH TIME ZONE", "Until when the receipt holds."),
    ("problem", "VARCHAR", "What is wrong with it; empty where nothing is."),
)
"""One row per endpoint and capability: its newest receipt."""
ENGINE_CHANGES = shown(
    ("engine", "VARCHAR", "Name of the engine on this host."),
    ("before", "VARCHAR", "State at the look before; none at the first."),
    ("after", "VARCHAR", "State now."),
    ("at", "TIMESTAMP WITH TIME ZONE", "When the change was seen."),
)
"""One row per change of an engine's state."""


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
