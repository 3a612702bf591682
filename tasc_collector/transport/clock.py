"""The two clocks of a call. Durations come from the monotonic one only; the wall clock dates a record and maps kernel
times.
"""

from __future__ import annotations

import time
from typing import Protocol


class MonotonicClock(Protocol):
    """A clock that never goes back; its origin means nothing."""

    def now_ns(self) -> int:
        """Nanoseconds of the monotonic clock, the one that the event loop's timers use too."""
        ...


class Clock(MonotonicClock, Protocol):
    """A monotonic clock together with the wall clock."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 (``CLOCK_REALTIME``, the clock of kernel receive times)."""
        ...


class SystemClock:
    """The machine's clocks: ``CLOCK_MONOTONIC`` and ``CLOCK_REALTIME``."""

    __slots__ = ()

    now_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)
