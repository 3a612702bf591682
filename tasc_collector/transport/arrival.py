"""When bytes arrived: the kernel's receive time, mapped to the monotonic clock.

Rules:

1. The kernel stamps with the wall clock. The difference of both clocks is measured once per call, between two readings
   of the monotonic clock, and taken for every read of the call; half the time between them is its uncertainty, where
   that is more than 50 us. Both clocks are slewed alike, so only a set wall clock changes the difference: it is
   measured again at the end.
2. A stamp is believed only if it lies between the previous arrival and the moment of the read; otherwise the wall
   clock was set, and the read counts like one without a stamp: it arrived when it was read, its lag is not known.
3. A read of several merged segments carries the time of the last one.
4. Where the system gives no kernel time, the lag of a read is bounded by the event loop's turns instead.
"""

from __future__ import annotations

import socket
import struct
from typing import TypeAlias

from tasc_collector.runtimes.result import Arrival
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.loop_turns import LoopTurns
from tasc_collector.transport.network import SO_TIMESTAMPNS

_TIMESPEC = struct.Struct("@ll")
ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
"""Room for one kernel time beside a read."""
_SLACK_NS = 50_000
"""Error of the once-per-call mapping: a stamp may seem this much newer than the read."""

_TRIES = 5
_GOOD_ENOUGH_NS = 2_000
_STEP_NS = 500_000

_new_tuple = tuple.__new__  # a named tuple's own constructor is a Python function, and every read of a stream makes one

Ancillary: TypeAlias = list[tuple[int, int, bytes]]


class ArrivalClock:
    """Turns what a read returned into an ``Arrival``.

    Args:
        clock: both clocks.
        origin_ns: moment of the monotonic clock from which arrivals are counted; 0 gives absolute ones.
        turns: turns of the event loop, where the system gives no kernel time.
    """

    __slots__ = ("_clock", "_offset_ns", "_origin_ns", "_turns", "_uncertainty_ns", "last_ns")

    def __init__(self, clock: Clock, origin_ns: int = 0, turns: LoopTurns | None = None) -> None:
        self._clock, self._origin_ns, self._turns = clock, origin_ns, turns
        self._offset_ns, half_ns = _difference(clock)
        self._uncertainty_ns = half_ns if half_ns > _SLACK_NS else 0
        self.last_ns = clock.now_ns()
        """The previous arrival, absolute; at first the moment of construction."""

    def arrival(self, ancillary: Ancillary, now_ns: int) -> Arrival:
        """Arrival of one read.

        Args:
            ancillary: control messages of ``recvmsg``.
            now_ns: the monotonic clock right after the read.
        """
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack_from(data)
                at_ns = seconds * 1_000_000_000 + nanoseconds - self._offset_ns
                if self.last_ns - _SLACK_NS <= at_ns <= now_ns + _SLACK_NS:
                    if at_ns < self.last_ns:
                        at_ns = self.last_ns
                    elif at_ns > now_ns:
                        at_ns = now_ns
                    self.last_ns = at_ns
                    return _new_tuple(Arrival, (at_ns - self._origin_ns, self._uncertainty_ns, now_ns - at_ns))
        self.last_ns = max(now_ns, self.last_ns)
        lag_ns = None if self._turns is None else now_ns - self._turns.before_last_ns
        return Arrival(self.last_ns - self._origin_ns, None, lag_ns)

    def wall_clock_was_set(self) -> bool:
        """True if the difference of the clocks is not what it was, so that a stamp may have been mapped wrongly."""
        offset_ns, uncertainty_ns = _difference(self._clock)
        return abs(offset_ns - self._offset_ns) > _STEP_NS + uncertainty_ns + self._uncertainty_ns


def _difference(clock: Clock) -> tuple[int, int]:
    """Wall clock minus monotonic clock, and half the time that the measurement took: the best of a few."""
    best = (0, 1 << 62)
    for _ in range(_TRIES):
        before = clock.now_ns()
        wall = clock.wall_ns()
        half = (clock.now_ns() - before) // 2
        if half < best[1]:
            best = (wall - before - half, half)
        if half <= _GOOD_ENOUGH_NS:
            break
    return best
