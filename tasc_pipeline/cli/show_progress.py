"""Progress in the terminal: a live line on a terminal, a plain line every 15 seconds elsewhere, and one at once where a
run begins to wait for its window.

The plain line comes from a thread of its own, so that it comes while one step of the work takes longer than that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tasc_collector.shadow.progress import STARTS_IN, Snapshot
from tasc_pipeline.cli.common import err
from tasc_pipeline.steps.watch import Unfinished, watching

PLAIN_EVERY_S = 15.0


def line_of(snapshot: Snapshot) -> str:
    """One line: done and total, rate, time left, states."""
    parts = [f"{snapshot.what} {snapshot.done}/{snapshot.total}".strip()]
    if snapshot.rate_per_s is not None and snapshot.left_s is not None:
        parts.append(f"{snapshot.rate_per_s:.1f}/s, {snapshot.left_s:.0f} s left")
    parts.extend(f"{state} {count}" for state, count in sorted(snapshot.states.items()))
    return "  ".join(parts)


@contextmanager
def terminal_progress() -> Iterator[Callable[[Snapshot], None]]:
    """A function that shows snapshots at a person's pace; everything that this context calls is watched by it too."""
    console, unfinished = err(), Unfinished()
    if console.is_terminal:
        with console.status("starting") as status:

            def live(snapshot: Snapshot) -> None:
                unfinished.tell(snapshot)
                shown, _ = unfinished.innermost() or (snapshot, 0.0)
                status.update(line_of(shown))

            with watching(live):
                yield live
        return
    ended = threading.Event()

    def speak() -> None:
        while not ended.wait(PLAIN_EVERY_S):
            if (found := unfinished.innermost()) is not None:
                snapshot, quiet_s = found
                waited = f"  (nothing new for {quiet_s:.0f} s)" if quiet_s >= PLAIN_EVERY_S else ""
                console.print(line_of(snapshot) + waited, markup=False)

    said_wait = False

    def tell(snapshot: Snapshot) -> None:
        nonlocal said_wait
        unfinished.tell(snapshot)
        if STARTS_IN in snapshot.states and not said_wait:
            said_wait = True
            console.print(line_of(snapshot), markup=False)

    speaker = threading.Thread(target=speak, name="progress", daemon=True)
    speaker.start()
    try:
        with watching(tell):
            yield tell
    finally:
        ended.set()
        speaker.join()
