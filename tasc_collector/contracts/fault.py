"""A planned execution that was certainly not sent, or never attempted: ``tasc-collector-fault-v1``.

It is the collector's own fault or decision, never the model's. It has no envelope and enters statistics as a stated
bound, never as zero.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

from tasc_collector.contracts.base import Record
from tasc_collector.contracts.scalars import Count, Digest, Slug, Timestamp, WindowKey
from tasc_collector.errors import Category


class FaultReason(StrEnum):
    """Why an execution has no envelope."""

    CONNECT_FAILED = "connect-failed"
    CONNECT_TIMEOUT = "connect-timeout"
    RESOLVE_FAILED = "resolve-failed"
    ADDRESS_REFUSED = "address-refused"
    TLS_FAILED = "tls-failed"
    SECRET_UNAVAILABLE = "secret-unavailable"  # noqa: S105 - a reason word, not a secret
    DEADLINE_BEFORE_SEND = "deadline-before-send"
    CANCELLED_BEFORE_SEND = "cancelled-before-send"
    INTERNAL = "internal"
    OVERLOADED = "overloaded"
    WINDOW_CLOSED = "window-closed"
    STOPPED = "stopped"
    BUDGET_EXHAUSTED = "budget-exhausted"
    AUTHORIZATION_REVOKED = "authorization-revoked"
    AUTHORIZATION_EXPIRED = "authorization-expired"
    KEY_ENDED = "key-ended"
    """A key that the window stands on was revoked, or its validity ended, while it was being sent."""


class CollectorFault(Record):
    """One execution without an envelope, and why."""

    domain: ClassVar[str] = "tasc/collector-fault/v1"

    version: Literal["tasc-collector-fault-v1"] = "tasc-collector-fault-v1"
    window_key: WindowKey
    plan_digest: Digest
    trace_id: Slug | None
    """Null where the execution was never prepared, because the trace id needs the case's text."""
    case_id: Slug
    group_id: Slug
    replicate_id: Slug
    replicate_index: Count
    profile_id: Slug
    state: Literal["not_sent", "not_attempted"]
    reason: FaultReason
    category: Category | None
    attempts: Count
    recorded_at: Timestamp
