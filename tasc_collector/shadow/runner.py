"""Collecting one sealed window: the order of everything, and what a resume does.

1. Preflight, before any file or socket: cases belong to the plan, worst case within the budget, every profile's call can be
   prepared.
2. Time: before the window's start the run waits at most a minute; after its end nothing is sent, and nothing that only a
   send needs is asked for, so that an old window can always be finished and read.
3. The journal is opened; its lock makes this process the only sender. Every record that is there is folded into the ledger.
4. What an earlier run left is finished without sending: an accepted execution gets its completion, an outcome its envelope,
   and a lease without an outcome becomes ``sent_unknown``: at once where its sender ran on this host, because it is dead
   (we hold its lock); where it ran on another host, or that is not known, only after the lease has expired. The admission
   before a lease names the host, so that holds however many runs on other hosts lie between.
5. Warm-up calls, then the pairs under the load model.
6. When every planned execution is final, or the window is over, the rest gets its reason, the settlement is written and the
   journal is sealed. Planned executions then equal the sum of their states.

A stop (signal, caller, cancellation) starts nothing new, waits for what is in flight to its own deadline, writes, and leaves
the rest for the next run. Where the word is over on which the window is sent (``standing``), there is none: the rest gets that
reason, and the journal is sealed before the window's end. Running the same command again is the way to finish; it never sends a case twice.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

from tasc_collector.canonical import JsonValue
from tasc_collector.contracts import fault, identities, persistence
from tasc_collector.contracts.base import build_schemas
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.fault import FaultReason
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.errors import DispatchState, NotAuthorized, TascError
from tasc_collector.journal import Journal, JournalReader, JournalRecord, JournalSeal, RecordKind, is_sealed
from tasc_collector.limits import START_WAIT_S
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.executions import PlannedPair, pairs_of, planned_pairs
from tasc_collector.shadow.executor import Executor
from tasc_collector.shadow.keys import ExecutionKey
from tasc_collector.shadow.ledger import FINAL, Ledger, Stage
from tasc_collector.shadow.preflight import preflight
from tasc_collector.shadow.progress import STARTS_IN, Progress, Snapshot
from tasc_collector.shadow.reading import told
from tasc_collector.shadow.scheduler import Lane, StopSignal, drain, run_pairs
from tasc_collector.shadow.standing import Standing

Status = Literal["complete", "partial", "stopped"]
FAULTS_PER_COMMIT = 1_000
"""Executions that are left out together in one commit."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Args:
        status: ``complete`` where every planned execution is final and the journal is sealed, ``stopped`` where a stop was
            requested, else ``partial``.
        planned: executions of the plan.
        states: how many are in each state; ``pending`` are those that are not final.
        reasons: reasons of those that are no success.
        sent_calls: calls whose lease this run wrote, warm-up included.
        resumed: whether an earlier run had begun.
        stop_reason: why it stopped, if it did. A ``complete`` run has one where its word was over: nothing was left to send.
        seal: the journal's seal, where it is complete.
    """

    status: Status
    planned: int
    states: dict[str, int]
    reasons: dict[str, int]
    sent_calls: int
    resumed: bool
    stop_reason: str
    seal: JournalSeal | None

    @property
    def stopped_by_signal(self) -> bool:
        """Whether a signal stopped it."""
        return self.status == "stopped"


def run_blocking(
    context: RunContext, *, show: Callable[[Snapshot], None], show_every_s: float = 1.0, send: bool = True
) -> RunResult:
    """Run on an event loop of its own; on the main thread SIGTERM and SIGINT request a stop.

    Args:
        context: what to run.
        show: called with progress, at most every ``show_every_s``.
        show_every_s: seconds between two calls of ``show``.
        send: False to settle only.

    Raises:
        InputError: the preflight refuses; nothing was sent.
        JournalError: the journal is locked, corrupt, full or failed.
    """
    stop = StopSignal()
    with asyncio.Runner() as runner, _signals(runner.get_loop(), stop):
        return runner.run(run_window(context, stop, show=show, show_every_s=show_every_s, send=send))


async def run_window(
    context: RunContext,
    stop: StopSignal,
    *,
    show: Callable[[Snapshot], None],
    show_every_s: float = 1.0,
    send: bool = True,
) -> RunResult:
    """The run itself; see the rules of this module and ``run_blocking``."""
    planned = list(planned_pairs(context.plan, context.declaration, context.case_set))
    if is_sealed(context.folder, fs=context.fs):
        return _sealed_result(context, planned, show, show_every_s)
    send = send and not _over(context)
    if send:
        preflight(context, planned)
        await _wait_for_start(context, stop, show, len(planned) * len(context.plan.targets))
    ledger = Ledger()
    with _reading(context, ledger, planned, show, show_every_s) as on_record:
        journal = Journal.open(
            context.folder,
            context.binding,
            context.journal_key,
            fs=context.fs,
            on_record=on_record,
            segment_bytes=context.segment_bytes,
            grow_bytes=context.grow_bytes,
        )
    try:
        resumed = journal.records > 0
        progress = Progress(len(planned) * len(context.plan.targets), show, context.clock.now_ns, show_every_s)
        for execution in ledger.executions.values():
            if execution.stage in FINAL:
                progress.already(execution.final_state)
        lanes = {
            target.profile_id: Lane(target.lane_width, context.plan.overload_stop_after)
            for target in context.plan.targets
        }
        standing = Standing(context.look, context.look_every_s, context.clock.now_ns, stop)
        executor = Executor(context, journal, ledger, lanes, stop, progress, standing)
        leased = _LeaseCount(ledger)
        if not ledger.closed:
            elsewhere = _leased_elsewhere(journal, ledger)
            admission = _admission(context, len(planned), journal.owner.host, resumed=resumed)
            sequence = await journal.append(RecordKind.ADMISSION, "", admission)
            ledger.note(RecordKind.ADMISSION, "", admission, sequence)
            await _finish_earlier(context, ledger, executor, elsewhere)
            if send and not _over(context) and not stop.requested:
                await _send(context, planned, ledger, executor, stop, lanes)
            progress.tick(force=True)
            standing.require_readable()
            reason = standing.over or _window_over(context, stop)
            if reason is not None and not _all_final(ledger, planned):
                await _leave_out_rest(planned, ledger, executor, journal, reason)
        complete = _all_final(ledger, planned)
        if complete and not ledger.closed:
            await journal.append(
                RecordKind.SETTLEMENT,
                "",
                {"closed": True, "states": dict(_states(ledger, planned)), "at": timestamp_of_ms(context.wall_ms())},
            )
        sent = leased.new()
    except BaseException:
        _close_quietly(journal)
        raise
    seal = journal.seal() if complete else None
    if seal is None:
        journal.close()
    status: Status = "complete" if complete else "stopped" if stop.requested else "partial"
    return _result(status, ledger, planned, sent, resumed=resumed, reason=stop.reason, seal=seal)


async def _wait_for_start(context: RunContext, stop: StopSignal, show: Callable[[Snapshot], None], total: int) -> None:
    declaration = context.declaration
    start = timestamp_ms(declaration.event_time_start_inclusive)
    left_s = (start - context.wall_ms()) / 1000
    if left_s > START_WAIT_S:
        raise NotAuthorized(
            f"the window starts in {left_s:.0f} s",
            where=context.plan.window_key,
            rule=f"a run waits at most {START_WAIT_S:.0f} s",
            way_out=f"run the command again at {declaration.event_time_start_inclusive}",
        )
    while left_s > 0 and not stop.requested:
        show(Snapshot(0, total, 0, {STARTS_IN: max(round(left_s), 1)}, 0.0))
        await stop.wait(min(left_s, 1.0))
        left_s = (start - context.wall_ms()) / 1000


def _leased_elsewhere(journal: Journal, ledger: Ledger) -> frozenset[str]:
    """Traces of open leases whose senders our lock does not prove dead (rule 4)."""
    here, before = journal.owner.host, journal.earlier_owner
    last_host = "" if before is None else before.host
    return frozenset(
        trace
        for trace, open_ in ledger.open.items()
        if open_.lease is not None and (not here or ledger.leased_on(trace, last_host) != here)
    )


async def _finish_earlier(context: RunContext, ledger: Ledger, executor: Executor, elsewhere: frozenset[str]) -> None:
    """Rule 4."""
    now = timestamp_of_ms(context.wall_ms())
    for execution in list(ledger.executions.values()):
        trace = execution.trace_id
        if execution.stage is Stage.ACCEPTED:
            await executor.complete(trace)
        elif execution.stage is Stage.LEASED:
            lease = ledger.open[trace].lease or {}
            if trace not in elsewhere or lease["expiresAt"] <= now:
                await executor.settle(trace)
        elif execution.stage is Stage.OUTCOME and execution.last_state is not DispatchState.NOT_SENT:
            await executor.accept(trace)


async def _send(
    context: RunContext,
    planned: list[PlannedPair],
    ledger: Ledger,
    executor: Executor,
    stop: StopSignal,
    lanes: dict[str, Lane],
) -> None:
    """Rule 5."""
    build_schemas(fault, identities, persistence)
    TraceEnvelope.model_rebuild()  # its parts are read with it, never alone
    plan = context.plan
    for index in range(plan.warm_up_calls_per_profile):
        await drain([asyncio.create_task(executor.warm_up(profile_id, index)) for profile_id in lanes], stop)
    left_ms = timestamp_ms(context.declaration.event_time_end_exclusive) - context.wall_ms()
    await run_pairs(
        pairs_of(planned, context.cases),
        plan.load_model,
        plan.pair_isolation,
        executor.run_one,
        now_ns=context.clock.now_ns,
        stop=stop,
        arrivals=context.arrivals,
        closes_ns=context.clock.now_ns() + left_ms * 1_000_000,
        finished=lambda pair: _nothing_left(ledger, pair.planned),
    )


def _nothing_left(ledger: Ledger, pair: PlannedPair) -> bool:
    """Whether nothing of a pair may be sent any more: each execution is final, or may have been sent."""
    return all(
        (found := ledger.executions.get(key)) is not None and (found.stage in FINAL or found.stage is Stage.LEASED)
        for key in pair.executions()
    )


def _window_over(context: RunContext, stop: StopSignal) -> FaultReason | None:
    """Rule 6: after the window's end what was never sent gets this reason; before it, it may still be sent."""
    return FaultReason.WINDOW_CLOSED if _over(context) and not stop.requested else None


async def _leave_out_rest(
    planned: list[PlannedPair], ledger: Ledger, executor: Executor, journal: Journal, reason: FaultReason
) -> None:
    """Give every execution that is not final the reason; a lease whose sender may live elsewhere is left alone."""
    written = 0
    for pair in planned:
        for key in pair.executions():
            execution = ledger.executions.get(key)
            if execution is not None and (execution.stage in FINAL or execution.stage is Stage.LEASED):
                continue
            executor.enqueue_left_out(pair, key.profile_id, reason)
            written += 1
            if written % FAULTS_PER_COMMIT == 0:
                await journal.flush()
    await journal.flush()


def _over(context: RunContext) -> bool:
    return context.wall_ms() >= timestamp_ms(context.declaration.event_time_end_exclusive)


def _all_final(ledger: Ledger, planned: list[PlannedPair]) -> bool:
    return all(
        (found := ledger.executions.get(key)) is not None and found.stage in FINAL
        for pair in planned
        for key in pair.executions()
    )


def _states(ledger: Ledger, planned: list[PlannedPair]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for key in (key for pair in planned for key in pair.executions()):
        execution = ledger.executions.get(key)
        counts[execution.final_state if execution is not None and execution.stage in FINAL else "pending"] += 1
    return counts


def _result(
    status: Status,
    ledger: Ledger,
    planned: list[PlannedPair],
    sent: int,
    *,
    resumed: bool,
    reason: str,
    seal: JournalSeal | None,
) -> RunResult:
    keys: list[ExecutionKey] = [key for pair in planned for key in pair.executions()]
    reasons = Counter(
        execution.reason
        for key in keys
        if (execution := ledger.executions.get(key)) is not None and execution.reason and execution.stage in FINAL
    )
    return RunResult(status, len(keys), dict(_states(ledger, planned)), dict(reasons), sent, resumed, reason, seal)


def _reading(
    context: RunContext,
    ledger: Ledger,
    planned: list[PlannedPair],
    show: Callable[[Snapshot], None],
    every_s: float,
) -> AbstractContextManager[Callable[[JournalRecord], None]]:
    total = len(planned) * len(context.plan.targets)
    return told(ledger.apply, total, show=show, now_ns=context.clock.now_ns, every_s=every_s)


def _sealed_result(
    context: RunContext, planned: list[PlannedPair], show: Callable[[Snapshot], None], show_every_s: float
) -> RunResult:
    reader, ledger = JournalReader(context.folder, context.binding, context.journal_key, context.fs), Ledger()
    with _reading(context, ledger, planned, show, show_every_s) as each:
        for record in reader.records():
            each(record)
    return _result("complete", ledger, planned, 0, resumed=True, reason="", seal=reader.seal)


def _admission(context: RunContext, pairs: int, host: str, *, resumed: bool) -> dict[str, JsonValue]:
    plan = context.plan
    return {
        "planDigest": plan.digest,
        "declarationDigest": plan.declaration_digest,
        "windowKey": plan.window_key,
        "pairs": pairs,
        "casesAtHand": len(context.cases),
        "resumed": resumed,
        "host": host,
        "at": timestamp_of_ms(context.wall_ms()),
    }


class _LeaseCount:
    """How many leases this run added."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._before = ledger, self._count(ledger)

    @staticmethod
    def _count(ledger: Ledger) -> int:
        return sum(execution.leases for execution in ledger.executions.values()) + len(ledger.warm_up_leased)

    def new(self) -> int:
        return self._count(self._ledger) - self._before


def _close_quietly(journal: Journal) -> None:
    """Give the lock back; the error that brought us here is the one to show."""
    try:
        journal.close()
    except (TascError, OSError):
        return


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stop: StopSignal) -> Iterator[None]:
    """Let SIGTERM and SIGINT request a stop, on the main thread; the handlers before are put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, stop.request, signal.Signals(number).name.lower())
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
