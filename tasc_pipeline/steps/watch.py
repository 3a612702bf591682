"""Progress for whoever called: a run inside Dagster, in this process, can still be watched from the terminal that started it.

Work that takes a while tells how far it is through ``counted``, and does not know who listens: a terminal, Dagster, both
or nobody. Work that sends has its own counter (``shadow/progress.py``), because it must also tell while it waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tasc_collector.shadow.progress import Snapshot

Show = Callable[[Snapshot], None]
_WATCHER: ContextVar[Show | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(show: Show) -> Iterator[None]:
    """Show progress of every run that this context starts, beside what the run itself does with it."""
    token = _WATCHER.set(show)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextmanager
def also_watching(show: Show, every_s: float) -> Iterator[None]:
    """Show progress here too, at most every so many seconds, beside whoever watches already."""
    outer = _WATCHER.get()
    last = [0.0]

    def shown(snapshot: Snapshot) -> None:
        if outer is not None:
            outer(snapshot)
        if snapshot.elapsed_s - last[0] >= every_s:
            last[0] = snapshot.elapsed_s
            show(snapshot)

    with watching(shown):
        yield


def counted(what: str, total: int) -> Callable[[int], None]:
    """Tell the watcher, if there is one, how far some work is.

    Args:
        what: a few words, such as ``publishing``.
        total: how much there is to do, in any unit.

    Returns:
        A function to call with what was done since.
    """
    watcher, started, done = _WATCHER.get(), time.monotonic(), [0]

    def tell(more: int) -> None:
        done[0] += more
        if watcher is not None:
            watcher(Snapshot(done[0], total, 0, {}, time.monotonic() - started, what))

    tell(0)
    return tell


def both(show: Show, every_s: float, terminal_every_s: float) -> tuple[Show, float]:
    """A function for the watcher and for ``show``, each at its own pace, and the pace at which to call it."""
    watcher = _WATCHER.get()
    if watcher is None:
        return show, every_s
    last = [0.0]

    def shown(snapshot: Snapshot) -> None:
        watcher(snapshot)
        if snapshot.elapsed_s - last[0] >= every_s:
            last[0] = snapshot.elapsed_s
            show(snapshot)

    return shown, min(every_s, terminal_every_s)
