"""What statistics see of a window: one small row per planned execution. No text, no envelope, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One planned execution and what is known about it; null is not known, never zero.

    Latencies are milliseconds from the first application byte written; see the warehouse's ``latency``.
    """

    case_id: str
    group_id: str
    replicate: int
    profile_id: str
    state: Literal["accepted", "not_sent", "not_attempted"]
    dispatch_state: Literal["completed", "sent_unknown", "not_sent"] | None
    status: Literal["success", "failure", "aborted"] | None
    reason: str | None
    weight: float = 1.0
    ttft_ms: float | None = None
    itl_p50_ms: float | None = None
    itl_p95_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    queue_ms: float | None = None
    connect_ms: float | None = None
    tls_ms: float | None = None
    collector_lag_ms: float | None = None
    timing_flagged: bool | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    tokens_per_event: float | None = None
    cost_usd: float | None = None

    @property
    def outcome(self) -> Literal["success", "failure", "sent_unknown", "not_sent", "not_attempted"]:
        """The one state that counts add up over."""
        if self.state != "accepted":
            return self.state
        if self.dispatch_state == "sent_unknown":
            return "sent_unknown"
        return "success" if self.status == "success" else "failure"

    @property
    def unit(self) -> tuple[str, str, int]:
        """Group, case and replicate: what pairs profiles."""
        return self.group_id, self.case_id, self.replicate


def ordered(observations: Iterable[Observation]) -> list[Observation]:
    """A fixed order, so that the same rows give the same bytes whatever order they came in."""
    return sorted(observations, key=lambda item: (item.unit, item.profile_id))


def with_costs(observations: Iterable[Observation], cost_usd: Iterable[float]) -> list[Observation]:
    """The rows with their modeled costs; what a call measured or reported itself stays.

    Args:
        observations: in the order of the costs.
        cost_usd: one per row, NaN where it is not known.
    """
    return [
        item if item.cost_usd is not None or usd != usd else replace(item, cost_usd=float(usd))
        for item, usd in zip(observations, cost_usd, strict=True)
    ]
