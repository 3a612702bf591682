"""The ceilings of one run: a field of the shadow run plan and of the collection plan (original project, section 3.6)."""

from __future__ import annotations

from typing import ClassVar

from tasc_collector.contracts.base import Record
from tasc_collector.contracts.scalars import Positive


class WorkBudget(Record):
    """The most that a run may do; each a positive integer."""

    domain: ClassVar[str] = "tasc/shadow-work-budget/v1"

    max_cases: Positive
    max_profiles: Positive
    max_replicates: Positive
    max_logical_executions: Positive
    max_attempts: Positive
    max_network_calls: Positive
    max_durable_records: Positive
    max_request_bytes: Positive
    max_response_bytes: Positive
    max_wall_clock_ms: Positive
    max_concurrency: Positive
