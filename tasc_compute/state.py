"""What state an instance is in: derived from its record, its liveness and its health, in that order. Pure.

| ref | liveness | health | now against the deadline | state |
|---|---|---|---|---|
| none | - | - | - | reserving |
| set | gone | - | - | exited |
| set | alive or unknown | ok | any | ready |
| set | alive or unknown | not ok | before | starting |
| set | alive or unknown | not ok | at or after | unhealthy |

Unknown liveness counts as alive: a lease is never given up on doubt. A pinned hold is alive and ready. The deadline is
the only memory: an engine that fails before it reads "starting" again, and one that becomes ready after it is ready.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tasc_compute.contracts import InstanceRecord, InstanceState, PinnedReference
from tasc_compute.errors import ContractError


class Liveness(StrEnum):
    """Whether what a record refers to still exists."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


def state_of(record: InstanceRecord, liveness: Liveness, *, healthy: bool, now: datetime) -> InstanceState:
    """The state of an instance.

    Args:
        record: the instance.
        liveness: what its launcher proved.
        healthy: its health check passed.
        now: current time, with a zone.

    Raises:
        ContractError: the record's deadline is no time. ``instances`` reads no such record.
    """
    if record.ref is None:
        return InstanceState.RESERVING
    if isinstance(record.ref, PinnedReference):
        return InstanceState.READY
    if liveness is Liveness.GONE:
        return InstanceState.EXITED
    if healthy:
        return InstanceState.READY
    return InstanceState.STARTING if now < parse_time(record.ready_deadline_at) else InstanceState.UNHEALTHY


def parse_time(text: str) -> datetime:
    """An ISO 8601 time with a zone.

    Raises:
        ContractError: it is none.
    """
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise ContractError("is no ISO 8601 time", way_out="remove the instance record") from None
    if value.tzinfo is None:
        raise ContractError("time has no zone", way_out="remove the instance record")
    return value


def format_time(value: datetime) -> str:
    """ISO 8601 UTC with milliseconds and ``Z``."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def deadline(start: datetime, budget_ms: int) -> str:
    """The time ``budget_ms`` after ``start``, as text."""
    return format_time(start + timedelta(milliseconds=budget_ms))
