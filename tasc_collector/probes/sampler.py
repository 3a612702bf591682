"""Scrapes of several servers' metrics around a window and every few seconds inside it, on the collector's clock.

Rules:

1. Only Prometheus routes that are passive and that the policy lists; a read that drains the server's queue is never made
   by a sampler.
2. ``before`` is complete when the context is entered, ``after`` is made when it is left, ``during`` in between: a window
   is always bracketed, however short it is.
3. A scrape that fails is a scrape whose values are all null, so that a server that died is visible as a gap, and is no
   reason to stop: a sampler decides nothing.
4. The thread has its own event loop. The sink is called in it, one call at a time. What the sink raises ends the sampling
   and is raised when the context is left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from tasc_collector.errors import WireError
from tasc_collector.limits import PROMETHEUS_MAX_BYTES, SCRAPE_DEADLINE_MS
from tasc_collector.probes.metrics import NOTHING, Reading, read_prometheus
from tasc_collector.probes.observations import Subject
from tasc_collector.probes.reading import can_read, read_route
from tasc_collector.runtimes.profile import Effect, ObservationKind
from tasc_collector.transport.clock import Clock
from tasc_collector.transport.network import NetworkAccess

Phase = Literal["before", "during", "after", "alone"]


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape of one server.

    Args:
        subject: the server.
        phase: where it lies with respect to the window.
        wall_ns: wall clock when it began, ns since 1970.
        took_ns: how long it took.
        reading: what it gave; all null where it failed.
        failed: whether it failed.
    """

    subject: Subject = field(repr=False)
    phase: Phase
    wall_ns: int
    took_ns: int
    reading: Reading
    failed: bool


def can_scrape(subject: Subject) -> bool:
    """Whether a sampler may read this server's metrics (rule 1)."""
    route = subject.profile.observation(ObservationKind.PROMETHEUS)
    return route is not None and route.required_effect is Effect.NON_MUTATING and can_read(subject.read, route.path)


async def scrape(subject: Subject, phase: Phase, *, clock: Clock, network: NetworkAccess | None = None) -> Scrape:
    """Scrape one server once.

    Raises:
        NotAuthorized: it has no passive Prometheus route, or the policy does not list it.
    """
    route = subject.profile.observation(ObservationKind.PROMETHEUS)
    wall_ns, begun_ns = clock.wall_ns(), clock.now_ns()
    path = "/metrics" if route is None else route.path
    answer = await read_route(
        subject.read, path, clock=clock, network=network, deadline_ms=SCRAPE_DEADLINE_MS, max_bytes=PROMETHEUS_MAX_BYTES
    )
    reading: Reading | None = None
    if answer.body is not None:
        try:
            reading = read_prometheus(subject.profile, answer.body)
        except WireError:
            reading = None
    return Scrape(subject, phase, wall_ns, clock.now_ns() - begun_ns, reading or NOTHING, failed=reading is None)


class Sampler:
    """Context manager that scrapes while its block runs.

    Args:
        subjects: the servers; those that may not be scraped are left out.
        sink: takes each scrape.
        every_s: seconds between two rounds.
        clock: both clocks.
        network: lookups and sockets; the system's if None.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        sink: Callable[[Scrape], None],
        *,
        every_s: float,
        clock: Clock,
        network: NetworkAccess | None = None,
    ) -> None:
        self._subjects = tuple(subject for subject in subjects if can_scrape(subject))
        self._sink, self._every_s, self._clock, self._network = sink, every_s, clock, network
        self._ready, self._stop = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="metrics-sampler", daemon=True)

    def __enter__(self) -> Self:
        if self._subjects:
            self._thread.start()
            self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._round("before"))
                self._ready.set()
                while not self._stop.wait(self._every_s):
                    runner.run(self._round("during"))
                runner.run(self._round("after"))
        except Exception as failure:  # noqa: BLE001  # the thread's boundary: it is raised again where the block ends
            self._error = failure
        finally:
            self._ready.set()

    async def _round(self, phase: Phase) -> None:
        reads = (scrape(subject, phase, clock=self._clock, network=self._network) for subject in self._subjects)
        for one in await asyncio.gather(*reads):
            self._sink(one)
