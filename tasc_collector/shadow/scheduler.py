"""When each pair starts: closed or open load, lanes per endpoint, pair isolation.

Rules:

1. A unit is a *pair*: one case replicate with all its profiles, in counterbalanced order. Order is kept inside a pair,
   never across the window, so that a slow profile does not delay another pair's clock.
2. A closed load keeps a fixed number of pairs in flight. An open load starts pairs on a schedule that does not wait for
   answers; a pair that must wait for a free place is *queued since its scheduled time* (no coordinated omission). It waits for
   no arrival that comes after the window's end. A resume takes the schedule up at the first pair that is not finished, and
   waits for no arrival of one that is.
3. A lane is one endpoint; it runs at most its width of calls at once. Waiting for it is queue time.
4. ``serial`` runs the profiles of a pair one after the other, ``overlap`` all at once.
5. After ``stop.requested`` nothing new starts; what runs is awaited to its own deadline. A cancellation of the run is such
   a stop; a second one does not wait for answers any more, but still lets each call write how far it came.
6. After a few consecutive 429, 503 or refused connects a lane stops for the rest of the run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tasc_collector.contracts.collection import ClosedLoad, LoadModel, OpenLoad
from tasc_collector.shadow.executions import Pair

NANOSECOND = 1_000_000_000
_NEVER_NS = 2**63
RunOne = Callable[[Pair, str, int], Coroutine[Any, Any, None]]
"""Called with the pair, the profile id and the instant (monotonic ns) since which the call is queued."""


class StopSignal:
    """Asks a run to stop starting calls. Set from a signal handler or another thread through the loop."""

    def __init__(self) -> None:
        self.requested = False
        self.reason = ""
        self._waiters: set[asyncio.Event] = set()

    def request(self, reason: str) -> None:
        """Stop; only the first reason is kept. Must run on the loop's thread."""
        if not self.requested:
            self.requested, self.reason = True, reason
            for waiter in self._waiters:
                waiter.set()

    async def wait(self, seconds: float) -> bool:
        """Sleep, or return early with True when a stop is requested."""
        if self.requested:
            return True
        event = asyncio.Event()
        self._waiters.add(event)
        try:
            await asyncio.wait_for(event.wait(), max(seconds, 0.0))
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(event)
        return self.requested


@dataclass(slots=True)
class Lane:
    """One endpoint's calls: width, and the run of refusals that stops it."""

    width: int
    stop_after: int
    refusals: int = 0
    stopped: bool = False
    places: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.places = asyncio.Semaphore(self.width)

    def saw(self, *, refused: bool) -> None:
        """Count one finished call: a refusal is a 429, a 503 or a refused connect."""
        self.refusals = self.refusals + 1 if refused else 0
        if self.refusals >= self.stop_after:
            self.stopped = True


async def run_pairs(
    pairs: Iterable[Pair],
    load: LoadModel,
    isolation: Literal["serial", "overlap"],
    run_one: RunOne,
    *,
    now_ns: Callable[[], int],
    stop: StopSignal,
    arrivals: Sequence[float] | None = None,
    closes_ns: int = _NEVER_NS,
    finished: Callable[[Pair], bool] = lambda _: False,
) -> None:
    """Run every pair under the load model, until done or stopped.

    Args:
        pairs: in the order in which they start.
        load: the plan's load model.
        isolation: the plan's pair isolation.
        run_one: runs one execution; an exception it raises ends the run after the others have drained.
        now_ns: monotonic clock.
        stop: stops new starts.
        arrivals: offsets in seconds of a trace file, for arrival ``trace``.
        closes_ns: instant on the monotonic clock from which no pair of an open load is started.
        finished: whether an earlier run left nothing of a pair to do.
    """
    source = iter(pairs)
    if isinstance(load, ClosedLoad):
        await drain(
            [asyncio.create_task(_worker(source, isolation, run_one, now_ns, stop)) for _ in range(load.concurrency)],
            stop,
        )
    else:
        schedule = zip(source, arrival_offsets(load, arrivals), strict=False)
        left = ((pair, offset) for pair, offset in schedule if not finished(pair))
        await _open(left, load, isolation, run_one, now_ns, stop, closes_ns)


async def _worker(
    source: Iterator[Pair], isolation: str, run_one: RunOne, now_ns: Callable[[], int], stop: StopSignal
) -> None:
    for pair in source:
        if stop.requested:
            return
        await _pair(pair, isolation, run_one, now_ns(), stop, now_ns)


async def _pair(
    pair: Pair, isolation: str, run_one: RunOne, queued_ns: int, stop: StopSignal, now_ns: Callable[[], int]
) -> None:
    if isolation == "overlap":
        await drain(
            [asyncio.create_task(run_one(pair, profile_id, queued_ns)) for profile_id in pair.order],
            stop,
            patient=False,
        )
        return
    for profile_id in pair.order:
        if stop.requested:
            return
        await run_one(pair, profile_id, queued_ns)
        queued_ns = now_ns()


async def _open(
    schedule: Iterator[tuple[Pair, float]],
    load: OpenLoad,
    isolation: str,
    run_one: RunOne,
    now_ns: Callable[[], int],
    stop: StopSignal,
    closes_ns: int,
) -> None:
    places = asyncio.Semaphore(load.maximum_concurrency)
    origin: int | None = None
    running: set[asyncio.Task[None]] = set()
    cancelled: asyncio.CancelledError | None = None

    async def start(pair: Pair, due_ns: int) -> None:
        async with places:
            if not stop.requested:
                await _pair(pair, isolation, run_one, due_ns, stop, now_ns)

    def ended(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            stop.request("cancelled")
        elif task.exception() is not None:
            stop.request("failed")  # wakes the wait for the next arrival
        else:
            running.discard(task)  # what did not end well stays for the drain to raise

    try:
        for pair, offset in schedule:
            offset_ns = int(offset * NANOSECOND)
            origin = now_ns() - offset_ns if origin is None else origin
            due = origin + offset_ns
            if await stop.wait((min(due, closes_ns) - now_ns()) / NANOSECOND) or due >= closes_ns:
                break
            task = asyncio.create_task(start(pair, due))
            running.add(task)
            task.add_done_callback(ended)
    except asyncio.CancelledError as error:
        stop.request("cancelled")
        cancelled = error
    await drain(list(running), stop, patient=cancelled is None)
    if cancelled is not None:
        raise cancelled


def arrival_offsets(load: OpenLoad, arrivals: Sequence[float] | None) -> Iterator[float]:
    """Seconds after the start at which pairs arrive: constant, Poisson (seeded), or those of a trace file."""
    if load.arrival == "trace":
        yield from arrivals or ()
        return
    assert load.rate_per_second is not None  # noqa: S101 - the schema says so for these arrivals
    source = random.Random(load.seed)  # noqa: S311 - a reproducible schedule, no secret
    offset = 0.0
    while True:
        yield offset
        offset += source.expovariate(load.rate_per_second) if load.arrival == "poisson" else 1.0 / load.rate_per_second


async def drain(tasks: list[asyncio.Task[None]], stop: StopSignal, *, patient: bool = True) -> None:
    """Await all; the first exception stops new starts, lets the others finish, and is raised at the end.

    Args:
        tasks: what runs.
        stop: told of a failure and of a cancellation.
        patient: whether a first cancellation waits for the tasks; else it is handed on to them at once.
    """
    failure: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None
    pending = set(tasks)
    while pending:
        try:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError as error:
            stop.request("cancelled")
            if cancelled is not None or not patient:
                for task in pending:
                    task.cancel()
            cancelled = error
            continue
        for task in done:
            if task.cancelled():
                stop.request("cancelled")
                cancelled = cancelled or asyncio.CancelledError()
            elif (error_of_task := task.exception()) is not None and failure is None:
                failure = error_of_task
                stop.request("failed")
    if failure is not None:
        raise failure
    if cancelled is not None:
        raise cancelled
