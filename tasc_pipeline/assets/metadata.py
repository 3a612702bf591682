"""Metadata of materializations: stable names and types, so that numbers become plots over windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import dagster as dg

from tasc_collector.shadow.runner import RunResult
from tasc_pipeline.assets.described import TARGETS
from tasc_pipeline.steps.approved import ApprovedPlan, LoadedReceipts
from tasc_pipeline.steps.close import ClosedWindow
from tasc_pipeline.steps.publish import ASSET_TABLES, Publication

Metadata = Mapping[str, Any]  # Any: whatever Dagster takes as a metadata value


def receipts_metadata(loaded: LoadedReceipts) -> Metadata:
    """The pinned receipts as a table."""
    rows = [
        dg.TableRecord(
            {
                "profile": profile_id,
                "capability": receipt.capability,
                "state": receipt.state,
                "valid_until": receipt.valid_until,
            }
        )
        for profile_id, receipt in loaded.receipts
    ]
    table = dg.MetadataValue.table(rows, schema=_schema("profile", "capability", "state", "valid_until"))
    return {"pinned": len(rows), "receipts": table} if rows else {"pinned": 0}


def plan_metadata(approved: ApprovedPlan) -> Metadata:
    """What may be sent, on whose word."""
    plan = approved.plan.record
    rows = [
        dg.TableRecord(
            {
                "profile": target.profile_id,
                "role": target.role,
                "endpoint": target.endpoint_alias,
                "runtime": f"{target.runtime.profile_id} {target.runtime.build}",
                "route": f"{target.route} ({target.framing})",
                "lane_width": target.lane_width,
            }
        )
        for target in plan.targets
    ]
    return {
        "study": plan.study_id,
        "purpose": plan.purpose,
        "plan_digest": approved.digest,
        "approved_at": approved.approved_at,
        "approved_by": approved.pinned_by.signature.authority_key_id,
        "authorization": None if approved.authorization is None else approved.authorization.record.authorization_id,
        "expires_at": plan.expires_at,
        "cases": plan.cases.count,
        "max_network_calls": plan.budget.max_network_calls,
        "max_output_tokens_per_call": plan.generation.maximum_output_tokens,
        "targets": dg.MetadataValue.table(rows, schema=TARGETS),
    }


def collection_metadata(asset: str, result: RunResult, published: Publication) -> Metadata:
    """Counts by state for the traces, rows for every table."""
    rows = {f"rows_{table}": published.rows[table] for table in ASSET_TABLES[asset]}
    total = sum(published.rows[table] for table in ASSET_TABLES[asset])
    if asset == "device_snapshots":
        # numbers, so that they become plots over windows; what the host cannot tell is left out
        return {**rows, **published.device_maxima, "dagster/row_count": total}
    if asset != "accepted_traces":
        return {**rows, "dagster/row_count": total}
    states = {
        f"executions_{state}": result.states.get(state, 0)
        for state in ("success", "failure", "sent_unknown", "not_sent", "not_attempted", "pending")
    }
    return {
        **rows,
        **states,
        "planned": result.planned,
        "dagster/row_count": published.rows["traces"],
        "resumed": result.resumed,
        "calls_of_this_run": result.sent_calls,
        "status": f"stopped: {result.stop_reason.replace('-', ' ')}" if result.stop_reason else result.status,
    }


def window_metadata(closed: ClosedWindow) -> Metadata:
    """What the closed window binds."""
    counts = closed.link.counts
    faults = Counter(str(item.fault.reason) for item in closed.collected.executions if item.fault is not None)
    return {
        "planned": counts.planned,
        "accepted": counts.accepted,
        "not_sent": counts.not_sent,
        "not_attempted": counts.not_attempted,
        "trace_set_digest": closed.link.trace_set_digest,
        "journal_head": closed.link.journal_head,
        "manifest_digest": closed.link.manifest_digest or "none",
        "closed_at": closed.link.closed_at,
        "reasons": dg.MetadataValue.json(dict(faults)),
    }


def _schema(*names: str) -> dg.TableSchema:
    return dg.TableSchema(columns=[dg.TableColumn(name) for name in names])
