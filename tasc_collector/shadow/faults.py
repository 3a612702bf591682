"""Executions that end without an envelope: which failure becomes which reason, and what may be tried again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.contracts.fault import CollectorFault, FaultReason
from tasc_collector.errors import Category
from tasc_collector.shadow.executions import PlannedPair
from tasc_collector.transport.codes import Code, category_of

REPEATABLE = frozenset({Category.TRANSPORT, Category.TIMEOUT, Category.CANCELLED})
"""Categories of an attempt that was certainly not sent after which another may be made. A refused address, a missing
secret or a broken message would fail again."""
REFUSED_STATUS = frozenset({429, 503})
"""Statuses by which a server says that it has too much to do."""
_REASONS: Mapping[Code, FaultReason] = {
    Code.RESOLVE_FAILED: FaultReason.RESOLVE_FAILED,
    Code.RESOLVE_TIMEOUT: FaultReason.RESOLVE_FAILED,
    Code.ADDRESS_REFUSED: FaultReason.ADDRESS_REFUSED,
    Code.PEER_MISMATCH: FaultReason.ADDRESS_REFUSED,
    Code.CONNECT_REFUSED: FaultReason.CONNECT_FAILED,
    Code.CONNECT_FAILED: FaultReason.CONNECT_FAILED,
    Code.CONNECTION_RESET: FaultReason.CONNECT_FAILED,
    Code.CONNECT_TIMEOUT: FaultReason.CONNECT_TIMEOUT,
    Code.TLS_FAILED: FaultReason.TLS_FAILED,
    Code.TLS_TIMEOUT: FaultReason.TLS_FAILED,
    Code.TLS_PIN_MISMATCH: FaultReason.TLS_FAILED,
    Code.DEADLINE_EXCEEDED: FaultReason.DEADLINE_BEFORE_SEND,
    Code.CALLER_CANCELLED: FaultReason.CANCELLED_BEFORE_SEND,
    Code.AUTHENTICATION_UNAVAILABLE: FaultReason.SECRET_UNAVAILABLE,
}


def repeatable(code: str | None) -> bool:
    """Whether an attempt that was certainly not sent, for this reason, may be followed by another."""
    return code is not None and category_of(Code(code), None) in REPEATABLE


def not_sent_reason(code: str | None) -> tuple[FaultReason, Category]:
    """Reason and category of an execution whose last attempt was certainly not sent, by that attempt's code."""
    if code is None:
        return FaultReason.INTERNAL, Category.INTERNAL
    return _REASONS.get(Code(code), FaultReason.INTERNAL), category_of(Code(code), None)


def fault_of(
    plan: CollectionPlan,
    planned: PlannedPair,
    profile_id: str,
    *,
    trace_id: str | None,
    reason: FaultReason,
    category: Category | None,
    attempts: int,
    recorded_at: str,
) -> CollectorFault:
    """The record of an execution without an envelope.

    Args:
        plan: the window's plan.
        planned: its pair.
        profile_id: its profile.
        trace_id: its trace, where it had an intent.
        reason: why.
        category: of the last attempt, where one decided it.
        attempts: attempts made, every one of them certainly not sent; with none, it was not attempted.
        recorded_at: wall clock.
    """
    state: Literal["not_sent", "not_attempted"] = "not_sent" if attempts else "not_attempted"
    return CollectorFault(
        window_key=plan.window_key,
        plan_digest=plan.digest,
        trace_id=trace_id,
        case_id=planned.case_id,
        group_id=planned.group_id,
        replicate_id=planned.replicate_id,
        replicate_index=planned.replicate_index,
        profile_id=profile_id,
        state=state,
        reason=reason,
        category=category,
        attempts=attempts,
        recorded_at=recorded_at,
    )
