"""The clock that the effects of this package take as an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for waits."""

    def now(self) -> datetime:
        """Wall time with a zone."""

    def monotonic_ms(self) -> float:
        """Milliseconds on a clock that never jumps."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""


class SystemClock:
    """The operating system's clocks."""

    def now(self) -> datetime:
        """Wall time in UTC."""
        return datetime.now(UTC)

    def monotonic_ms(self) -> float:
        """Milliseconds of ``time.monotonic``."""
        return time.monotonic() * 1000

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""
        time.sleep(duration_ms / 1000)
