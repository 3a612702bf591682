"""A world whose operator has given a standing authorization, and a wall clock that can be moved by hours."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from tasc_collector.contracts.collection import Ceilings, StandingAuthorization
from tasc_collector.contracts.scalars import format_timestamp
from tasc_pipeline.home import Home
from tasc_pipeline.steps.authorize import Wanted, authorize
from tests.support.window import now


class MovedClock:
    """The machine's clocks with the wall clock some hours ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def move_to(self, instant: datetime) -> None:
        """Make it this instant now."""
        self.ahead = instant - datetime.now(UTC)

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns() + self.ahead // timedelta(microseconds=1) * 1_000

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def ceilings(**changes: object) -> Ceilings:
    """Room for a few tiny windows."""
    fields: dict[str, object] = {
        "windows_per_day": 5,
        "windows_in_all": 20,
        "calls_per_day": 200,
        "output_tokens_per_day": 2_000,
        "canary_calls_per_day": 0,
        "cost_usd_per_day": None,
    }
    return Ceilings(**(fields | changes))  # type: ignore[arg-type]  # fields of Ceilings


def authorized(
    home: Home,
    study_id: str = "first",
    *,
    at: datetime | None = None,
    days: float = 30,
    authorization_id: str = "hourly",
    effects: tuple[str, ...] = (),
    **changes: object,
) -> StandingAuthorization:
    """Give an authorization, as the operator does."""
    at = at or now()
    wanted = Wanted(ceilings(**changes), format_timestamp(at + timedelta(days=days)), authorization_id, effects=effects)
    return authorize(home, study_id, wanted, at)
