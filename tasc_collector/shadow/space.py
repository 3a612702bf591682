"""Journal space for what must still be written after a send: set aside before the lease, so that a disk that is full by
then loses nothing.
"""

from __future__ import annotations

import orjson

from tasc_collector.journal import Journal, Reservation
from tasc_collector.shadow.ledger import OpenExecution

CALL_BYTES = 8_192
"""Outcome without events, attempt and attestation of the envelope, completion, and the frames of the three records."""
EVENT_BYTES = 64
"""One token event in an outcome: offset, count, kind and uncertainty."""
EVENTS_BEYOND_TOKENS = 64
"""Events of a well-behaved answer beyond one per token: role, finish, reasoning that is not counted."""


def call_bytes(max_tokens: int, open_: OpenExecution | None = None) -> int:
    """Bytes that outcome, accepted and complete of one call take, by what is known before it.

    An answer with more events than that takes its further space as any record does.

    Args:
        max_tokens: most tokens that were asked for.
        open_: the execution, whose envelope repeats its intent and its earlier attempts; None for a warm-up call.
    """
    carried = 0 if open_ is None else len(orjson.dumps([open_.intent, *open_.attempts]))
    return CALL_BYTES + carried + EVENT_BYTES * (max_tokens + EVENTS_BEYOND_TOKENS)


class Space:
    """A reservation that is taken late and given back in any case.

    Args:
        journal: where.
        size: bytes.
    """

    def __init__(self, journal: Journal, size: int) -> None:
        self._journal, self._size = journal, size
        self.reservation: Reservation | None = None

    def take(self) -> None:
        """Reserve; ``JournalFull`` where there is no room, and nothing was sent."""
        self.reservation = self._journal.reserve(self._size)

    def release(self) -> None:
        """Give back what was not used."""
        if self.reservation is not None:
            self.reservation.release()
            self.reservation = None
