"""Progress for whoever called: a run inside Dagster, in this process, can still be watched from the terminal that started it."""

from __future__ import annotations

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
