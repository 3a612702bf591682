"""Whether a run may still send: the word it was begun on is looked at again while it sends.

Rules:

1. Before a lease the word is looked at where the last look is older than the interval. So no request leaves later than
   one interval after the word is durably over, however long the window is; where nothing is sent, nothing is looked at.
2. A word that is over is over for good. The run starts nothing more, waits for what is in flight, and gives what is left
   the reason: nobody may send it any more.
3. A word that cannot be read is not over: the run starts nothing more, writes what is in flight, and fails with what was
   found. The rest stays for the run after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tasc_collector.contracts.fault import FaultReason
from tasc_collector.errors import InputError, TascError
from tasc_collector.shadow.scheduler import StopSignal

Look = Callable[[], FaultReason | None]
"""Reads the word: why it is over, or None. Called on a thread of its own; raises ``TascError`` where it cannot tell."""
_NANOSECOND = 1_000_000_000


class Standing:
    """The word of one run.

    Args:
        look: reads it; None where nothing can take it back.
        every_s: the interval of rule 1.
        now_ns: monotonic clock.
        stop: told when the word is over, or cannot be read.

    Attributes:
        over: why nothing may be sent any more; None while it may.
        error: why the word cannot be read; None where it could.
    """

    def __init__(self, look: Look | None, every_s: float, now_ns: Callable[[], int], stop: StopSignal) -> None:
        self._look, self._every_ns, self._now_ns, self._stop = look, round(every_s * _NANOSECOND), now_ns, stop
        self._looked_ns: int | None = None
        self._looking = asyncio.Lock()
        self.over: FaultReason | None = None
        self.error: TascError | None = None

    async def holds(self) -> bool:
        """Whether a lease may be written now; where not, the stop is requested."""
        if self._look is not None:
            async with self._looking:  # who comes while somebody looks waits for what is seen
                await self._look_if_due(self._look)
        return self.over is None and self.error is None

    def require_readable(self) -> None:
        """Fail as the look did, where it could not tell (rule 3)."""
        if self.error is not None:
            raise self.error

    async def _look_if_due(self, look: Look) -> None:
        now = self._now_ns()
        if self._looked_ns is not None and now - self._looked_ns < self._every_ns:
            return
        try:
            self.over = self.over or await asyncio.to_thread(look)
        except TascError as error:
            self.error = self.error or error
            self._stop.request("unreadable-word")
        except OSError:
            self.error = self.error or InputError(
                "it cannot be told whether this window may still be sent",
                rule="its authorization, revocations and keys are readable",
                way_out="check the state folder and its disk, then run the same command again",
            )
            self._stop.request("unreadable-word")
        self._looked_ns = now
        if self.over is not None:
            self._stop.request(self.over.value)
