"""Progress in the terminal: a live line on a terminal, a plain line every 15 seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tasc_collector.shadow.progress import Snapshot
from tasc_pipeline.cli.common import err

PLAIN_EVERY_S = 15.0


def line_of(snapshot: Snapshot) -> str:
    """One line: done and total, rate, time left, states."""
    parts = [f"{snapshot.done}/{snapshot.total}"]
    if snapshot.rate_per_s is not None and snapshot.left_s is not None:
        parts.append(f"{snapshot.rate_per_s:.1f}/s, {snapshot.left_s:.0f} s left")
    parts.extend(f"{state} {count}" for state, count in sorted(snapshot.states.items()))
    return "  ".join(parts)


@contextmanager
def terminal_progress() -> Iterator[Callable[[Snapshot], None]]:
    """A function that shows snapshots at a person's pace."""
    console = err()
    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda snapshot: status.update(line_of(snapshot))
        return
    shown = [time.monotonic()]

    def plain(snapshot: Snapshot) -> None:
        if time.monotonic() - shown[0] >= PLAIN_EVERY_S:
            shown[0] = time.monotonic()
            console.print(line_of(snapshot), markup=False)

    yield plain
