"""Which windows are due for what. Pure; it starts nothing, and whoever is started verifies everything itself."""

from __future__ import annotations

from typing import Final

from tasc_collector.contracts.scalars import timestamp_ms

LAUNCH_AHEAD_MS: Final = 45_000
"""A run waits at most a minute for its window's start, and Dagster takes some seconds to start it."""


def launch_is_due(*, approved: bool, closed: bool, starts_at: str, ends_at: str, now: str) -> bool:
    """Whether a window should be collected now: approved, not closed, starting soon or started, and not over."""
    return approved and not closed and now < ends_at and timestamp_ms(starts_at) <= timestamp_ms(now) + LAUNCH_AHEAD_MS


def settlement_is_due(*, approved: bool, closed: bool, ends_at: str, now: str) -> bool:
    """Whether a window should be settled now: approved, over and not closed."""
    return approved and not closed and ends_at <= now


def run_key(*parts: str) -> str:
    """A run key: the same parts give the same run, which Dagster starts once. Digests are cut to 32 hex digits."""
    return ":".join(part.removeprefix("sha256:")[:32] if part.startswith("sha256:") else part for part in parts)
