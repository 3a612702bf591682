"""The wall clock, where a step or a run of Dagster is not handed one."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The instant, UTC."""
    return datetime.now(UTC)
