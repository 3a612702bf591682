"""Progress for whoever called: a run inside Dagster, in this process, can still be watched from the terminal that started it.

Work that takes a while tells how far it is through ``counted``, and does not know who listens: a terminal, Dagster, both
or nobody. Work that sends has its own counter (``shadow/progress.py``), because it must also tell while it waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from tasc_collector.shadow.progress import Snapshot

Show = Callable[[Snapshot], None]
_WATCHER: ContextVar[Show | None] = ContextVar("watcher", default=None)
_LEAST_WAIT_S = 0.05


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
    """Show progress here too, beside whoever watches already: at most every so many seconds, and no later than twice that.

    While one step of the work is silent for longer, a thread shows again how far it was, with the time that has passed.
    """
    outer, pace, ended = _WATCHER.get(), _Pace(show, every_s), threading.Event()

    def shown(snapshot: Snapshot) -> None:
        if outer is not None:
            outer(snapshot)
        pace.tell(snapshot)

    def remind() -> None:
        while not ended.wait(max(every_s, _LEAST_WAIT_S)):
            pace.remind()

    reminder = threading.Thread(target=remind, name="progress", daemon=True)
    reminder.start()
    try:
        with watching(shown):
            yield
    finally:
        ended.set()
        reminder.join()


class _Pace:
    """Passes on what it is told, at most once per ``every_s``, over all work that follows one another."""

    def __init__(self, show: Show, every_s: float) -> None:
        self._show, self._every_s = show, every_s
        self._lock = threading.Lock()
        self._latest: Snapshot | None = None
        self._told_at = self._shown_at = time.monotonic()

    def tell(self, snapshot: Snapshot) -> None:
        """What was done since."""
        with self._lock:
            self._latest, self._told_at = snapshot, time.monotonic()
            self._show_if_due(snapshot)

    def remind(self) -> None:
        """Nothing was told for a while; what is finished needs no reminder."""
        with self._lock:
            if self._latest is not None and self._latest.done < self._latest.total:
                quiet_s = time.monotonic() - self._told_at
                self._show_if_due(replace(self._latest, elapsed_s=self._latest.elapsed_s + quiet_s))

    def _show_if_due(self, snapshot: Snapshot) -> None:
        if (now := time.monotonic()) - self._shown_at >= self._every_s:
            self._shown_at = now
            self._show(snapshot)


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
