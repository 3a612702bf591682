"""Progress of reading a journal that an earlier run left. A large one takes seconds, and no event loop runs meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tasc_collector.journal import JournalRecord, RecordKind
from tasc_collector.shadow.progress import NANOSECOND, Snapshot

READING = "reading the journal"
LAST = frozenset({RecordKind.ACCEPTED, RecordKind.FAULT})
"""Kinds of which an execution has one at most, and one of them once it is final."""
_LOOK_EVERY = 1_024
"""Records between two looks at the clock: a few milliseconds."""


@contextmanager
def told(
    apply: Callable[[JournalRecord], None],
    total: int,
    *,
    show: Callable[[Snapshot], None],
    now_ns: Callable[[], int],
    every_s: float,
) -> Iterator[Callable[[JournalRecord], None]]:
    """Tell how far a pass over a journal is, in executions that are final; one that is quick tells nothing.

    Args:
        apply: what is done with each record.
        total: planned executions.
        show: called at most every ``every_s``, and at the end where it was called before.
        now_ns: monotonic clock.
        every_s: seconds.

    Yields:
        A function to call with each record.
    """
    started_ns = shown_ns = now_ns()
    records = final = 0

    def tell(done: int) -> None:
        show(Snapshot(done, total, 0, {}, (now_ns() - started_ns) / NANOSECOND, READING))

    def each(record: JournalRecord) -> None:
        nonlocal records, final, shown_ns
        apply(record)
        records += 1
        final += record.kind in LAST
        if records % _LOOK_EVERY == 0 and now_ns() - shown_ns >= every_s * NANOSECOND:
            shown_ns = now_ns()
            tell(min(final, total - 1))

    yield each
    if shown_ns != started_ns:
        tell(total)  # the rest is not final, and the pass is over
