"""How late the event loop may have been, where the kernel gives no receive time.

A beat is scheduled every millisecond while a call without kernel times is open. Bytes that a turn of the loop reads
were not there when the turn before last asked the system, or it would have read them; so they arrived after the beat
before the last one, and the read is late by at most the time since. An idle loop shows about 2 ms, a blocked one the
length of the block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from tasc_collector.transport.clock import MonotonicClock

_BEAT_S = 0.001


class LoopTurns:
    """Times of the last two beats of one event loop.

    Args:
        clock: the clock of the calls.
        loop: the loop that is watched.
    """

    __slots__ = ("_clock", "_last_ns", "_loop", "_timer", "before_last_ns", "users")

    def __init__(self, clock: MonotonicClock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock, self._loop = clock, loop
        self._last_ns = self.before_last_ns = clock.now_ns()
        self._timer: asyncio.TimerHandle | None = None
        self.users = 0

    def beat(self) -> None:
        """Note a turn of the loop and ask for the next one."""
        self.before_last_ns, self._last_ns = self._last_ns, self._clock.now_ns()
        self._timer = self._loop.call_later(_BEAT_S, self.beat)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopTurns] = WeakKeyDictionary()


@contextmanager
def watched_turns(clock: MonotonicClock) -> Iterator[LoopTurns]:
    """The beats of the running loop, kept up while at least one call uses them."""
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = LoopTurns(clock, loop)
        turns.beat()
    turns.users += 1
    try:
        yield turns
    finally:
        turns.users -= 1
        if turns.users == 0:
            turns.stop()
            _TURNS.pop(loop, None)
