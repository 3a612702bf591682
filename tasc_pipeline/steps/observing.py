"""What statistics see of an execution: the warehouse's own row, so that SQL, verdict and decision agree."""

from __future__ import annotations

from tasc_pipeline.control.observations import Observation
from tasc_pipeline.warehouse.rows import Execution, execution_row


def observation(execution: Execution) -> Observation:
    """The small row of one planned execution."""
    row = execution_row(execution)
    return Observation(
        case_id=row.case_id,
        group_id=row.group_id,
        replicate=row.replicate,
        profile_id=row.profile_id,
        state=row.state,
        dispatch_state=row.dispatch_state,  # type: ignore[arg-type]  # words of the same lists
        status=row.status,  # type: ignore[arg-type]
        reason=row.failure_category or row.fault_reason,
        weight=row.weight,
        ttft_ms=row.ttft_ms,
        itl_p50_ms=row.itl_p50_ms,
        itl_p95_ms=row.itl_p95_ms,
        tpot_ms=row.tpot_ms,
        e2e_ms=row.e2e_ms,
        queue_ms=row.queue_ms,
        connect_ms=row.connect_ms,
        tls_ms=row.tls_ms,
        collector_lag_ms=row.collector_lag_ms,
        timing_flagged=row.timing_flagged,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cached_input_tokens=row.input_tokens_cached,
        tokens_per_event=row.tokens_per_event,
        cost_usd=row.cost_usd,
    )
