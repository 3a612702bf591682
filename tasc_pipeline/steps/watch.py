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


class Unfinished:
    """The pieces of work that have begun and not ended, the innermost last; safe to use from several threads.

    1. A piece that is told for the first time stands inside those before it: outer work waits while inner work goes on.
    2. When a piece tells again, what stood inside it is over, however it ended.
    3. A piece that is finished uncovers the one around it.
    4. Work that sends has no name and nothing inside it: what is told after it has taken its place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[tuple[Snapshot, float]] = []
        self._told_at = time.monotonic()

    def tell(self, snapshot: Snapshot) -> None:
        """What was done since."""
        with self._lock:
            self._told_at = now = time.monotonic()
            names = [piece.what for piece, _ in self._open]
            place = next((place for place, name in enumerate(names) if name in ("", snapshot.what)), len(names))
            del self._open[place:]
            if snapshot.done < snapshot.total:
                self._open.append((snapshot, now))

    def innermost(self) -> tuple[Snapshot, float] | None:
        """The innermost of them, with the time that has passed, and for how many seconds nothing was told of any."""
        with self._lock:
            if not self._open:
                return None
            now, (snapshot, told_at) = time.monotonic(), self._open[-1]
            return replace(snapshot, elapsed_s=snapshot.elapsed_s + now - told_at), now - self._told_at


class _Pace:
    """Passes on what it is told, at most once per ``every_s``, over all work that follows one another."""

    def __init__(self, show: Show, every_s: float) -> None:
        self._show, self._every_s = show, every_s
        self._lock = threading.Lock()
        self._unfinished = Unfinished()
        self._shown_at = time.monotonic()

    def tell(self, snapshot: Snapshot) -> None:
        """What was done since."""
        with self._lock:
            self._unfinished.tell(snapshot)
            self._show_if_due(snapshot)

    def remind(self) -> None:
        """Nothing was told for a while; what is finished needs no reminder, what it was part of does."""
        with self._lock:
            found = self._unfinished.innermost()
            if found is not None:
                self._show_if_due(found[0])

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
        if not 0 <= snapshot.elapsed_s - last[0] < every_s:  # less than before: the next piece of work
            last[0] = snapshot.elapsed_s
            show(snapshot)

    return shown, min(every_s, terminal_every_s)
