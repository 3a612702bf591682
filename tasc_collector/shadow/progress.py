"""How far a run is: done and total, rate, time left; shown at a person's pace, never once per call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

NANOSECOND = 1_000_000_000
STARTS_IN = "starts in s"
"""State of a run that waits for its window: the seconds left."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts at one moment."""

    done: int
    total: int
    in_flight: int
    states: dict[str, int]
    elapsed_s: float
    what: str = ""
    """What is being done, where it is not the collecting of a window."""

    @property
    def rate_per_s(self) -> float | None:
        """Executions finished per second in this run, null before the first."""
        return self.done / self.elapsed_s if self.done and self.elapsed_s > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds left at the present rate, null before the first."""
        rate = self.rate_per_s
        return (self.total - self.done) / rate if rate else None


@dataclass(slots=True)
class Progress:
    """Counts finished executions and calls ``show`` at most once per ``every_s``."""

    total: int
    show: Callable[[Snapshot], None]
    now_ns: Callable[[], int]
    every_s: float = 1.0
    in_flight: int = 0
    states: dict[str, int] = field(default_factory=dict)
    done: int = 0
    _started_ns: int = 0
    _shown_ns: int = 0

    def __post_init__(self) -> None:
        self._started_ns = self._shown_ns = self.now_ns()

    def already(self, state: str) -> None:
        """An execution that an earlier run finished: it lowers the total of this run."""
        self.states[state] = self.states.get(state, 0) + 1
        self.total -= 1

    def finished(self, state: str) -> None:
        """One more execution is final."""
        self.done += 1
        self.states[state] = self.states.get(state, 0) + 1
        self.tick()

    def tick(self, *, force: bool = False) -> None:
        """Show if it is time."""
        now = self.now_ns()
        if force or now - self._shown_ns >= self.every_s * NANOSECOND:
            self._shown_ns = now
            self.show(self.snapshot())

    def snapshot(self) -> Snapshot:
        """The counts now."""
        return Snapshot(
            self.done, self.total, self.in_flight, dict(self.states), (self.now_ns() - self._started_ns) / NANOSECOND
        )
