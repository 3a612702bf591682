"""One execution, from intent to complete: the only code that leads to a send.

Order of the records of one execution (what follows a record waits until it is durable, but for rule 3):

1. ``intent``, signed with the dispatch key.
2. per attempt: connect and TLS; space for what follows is reserved; ``lease``; then the first byte may leave; ``outcome``.
3. ``accepted`` with the envelope signed by the collector key, and ``complete``, in one commit with the outcome before them;
   or ``fault`` where nothing was sent.

An attempt is repeated only where the write ledger proves that nothing was sent, attempts are left, the failure is one of
transport or time, the lane is open and the window too; after a bounded, jittered pause. That holds across runs: what an
earlier run tried counts. A lease whose sender may still live elsewhere is left alone. A journal that failed sends nothing
more, not even what it had leased. A cancelled call writes how far it came before the cancellation goes on.

What was observed of a sent call is held to the envelope's schema before any of it is written. Where it cannot stand there the
fault is ours: the call becomes ``sent_unknown`` with category ``internal``, and the window goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tasc_collector.canonical import canonical_member
from tasc_collector.contracts.fault import FaultReason
from tasc_collector.contracts.scalars import timestamp_ms, timestamp_of_ms
from tasc_collector.errors import Category, DispatchState
from tasc_collector.identity import attempt_id
from tasc_collector.invocation.dispatch import InvocationCancelled, InvocationOutcome, dispatch
from tasc_collector.invocation.prepare import PreparedInvocation, prepare
from tasc_collector.journal import Journal, RecordKind
from tasc_collector.limits import MAX_RETRY_BACKOFF_S
from tasc_collector.runtimes.request import Generation
from tasc_collector.shadow.attempts import attempt_of, outcome_body, unknown_attempt
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.envelopes import attested, execution_ids, signed_intent
from tasc_collector.shadow.executions import Pair, PlannedPair
from tasc_collector.shadow.faults import REFUSED_STATUS, fault_of, not_sent_reason, repeatable
from tasc_collector.shadow.keys import ExecutionKey
from tasc_collector.shadow.ledger import FINAL, Ledger, OpenExecution, Stage
from tasc_collector.shadow.progress import Progress
from tasc_collector.shadow.requests import generation_of, request_of, warm_up_generation
from tasc_collector.shadow.scheduler import Lane, StopSignal
from tasc_collector.shadow.space import Space, call_bytes
from tasc_collector.shadow.standing import Standing
from tasc_collector.transport.codes import Code


class NotLeased(Exception):
    """Nothing may be sent: the run stops, its word or the window is over, or the journal has failed."""


class _Sealed(NamedTuple):
    """What ends an execution, ready to be written.

    Args:
        outcome: body of its last outcome; None where the journal has it.
        envelope: canonical bytes of the signed envelope.
        collected_at: when the collector signed.
    """

    outcome: dict[str, Any] | None  # Any: a JSON object
    envelope: bytes
    collected_at: str


class Executor:
    """Runs executions of one window against its journal."""

    def __init__(
        self,
        context: RunContext,
        journal: Journal,
        ledger: Ledger,
        lanes: dict[str, Lane],
        stop: StopSignal,
        progress: Progress,
        standing: Standing,
    ) -> None:
        self._context, self._journal, self._ledger = context, journal, ledger
        self._lanes, self._stop, self._progress, self._standing = lanes, stop, progress, standing
        self._end_ms = timestamp_ms(context.declaration.event_time_end_exclusive)
        self._jitter = random.Random(context.plan.declaration_digest)  # noqa: S311 - spreads retries, no secret

    async def run_one(self, pair: Pair, profile_id: str, queued_ns: int) -> None:
        """Run one execution to its end, or leave it as it is where the run stops or an earlier run finished it."""
        key = ExecutionKey(pair.case.case_id, pair.planned.replicate_id, profile_id)
        known = self._ledger.executions.get(key)
        if known is not None and (known.stage in FINAL or known.stage is Stage.LEASED):
            return
        lane = self._lanes[profile_id]
        async with lane.places:
            if self._stop.requested:
                return
            if lane.stopped:
                await self.leave_out(pair.planned, profile_id, FaultReason.OVERLOADED)
            elif self._closed():
                await self.leave_out(pair.planned, profile_id, FaultReason.WINDOW_CLOSED)
            else:
                self._progress.in_flight += 1
                try:
                    await self._execute(pair, key, queued_ns, lane)
                finally:
                    self._progress.in_flight -= 1

    async def warm_up(self, profile_id: str, index: int) -> None:
        """One journaled call that is never scored; skipped where an earlier run leased it."""
        trace, lane = f"warmup-{profile_id}-{index:04d}", self._lanes[profile_id]
        if trace in self._ledger.warm_up_leased or self._stop.requested or lane.stopped:
            return
        context, target = self._context, self._context.target(profile_id)
        generation = warm_up_generation(context.plan, target)
        await self._append(RecordKind.INTENT, trace, {"traceId": trace, "profileId": profile_id, "warmUp": True})
        space = Space(self._journal, call_bytes(generation.max_tokens))
        try:
            outcome = await self._dispatch(
                self._prepare(generation, profile_id),
                profile_id,
                trace,
                f"{trace}-attempt-1",
                1,
                context.clock.now_ns(),
                space,
                not_before="",
            )
            _note_refusal(lane, outcome)
            await self._append(
                RecordKind.OUTCOME, trace, {"traceId": trace, "dispatchState": outcome.state.value}, space
            )
        except NotLeased:
            return
        finally:
            space.release()

    async def leave_out(self, planned: PlannedPair, profile_id: str, reason: FaultReason) -> None:
        """Record that an execution is not tried (any more), and why."""
        self.enqueue_left_out(planned, profile_id, reason)
        await self._journal.flush()

    def enqueue_left_out(self, planned: PlannedPair, profile_id: str, reason: FaultReason) -> None:
        """``leave_out`` without waiting: the record is durable with the next one that somebody waits for."""
        known = self._ledger.executions.get(ExecutionKey(planned.case_id, planned.replicate_id, profile_id))
        trace = None if known is None else known.trace_id
        attempts = 0 if trace is None else len(self._ledger.open[trace].attempts)
        self._fault(planned, profile_id, trace, reason=reason, category=None, attempts=attempts)

    async def settle(self, trace: str) -> None:
        """Give a lease without outcome the outcome ``sent_unknown``, and its envelope; its sender is gone."""
        open_ = self._ledger.open[trace]
        target = self._context.target(self._ledger.by_trace[trace].key.profile_id)
        attempt = unknown_attempt(open_.lease or {}, target, settled_at=self._now())
        sealed = self._sealed(open_, outcome_body(trace, attempt))
        await self._accept(trace, sealed)

    async def accept(self, trace: str) -> None:
        """Give an execution whose last outcome may have been sent its envelope; a crash came between the two."""
        open_ = self._ledger.open[trace]
        envelope, collected = self._envelope(open_, open_.attempts, open_.terminal_output_id)
        await self._accept(trace, _Sealed(None, envelope, collected))

    def _sealed(self, open_: OpenExecution, body: dict[str, Any]) -> _Sealed:  # Any: a JSON object
        """An outcome with the signed envelope that it leads to; ``InputError`` where it breaks the envelope's schema."""
        envelope, collected = self._envelope(open_, [*open_.attempts, body["attempt"]], body["terminalOutputId"])
        return _Sealed(body, envelope, collected)

    def _envelope(
        self, open_: OpenExecution, attempts: list[dict[str, Any]], output: dict[str, Any] | None
    ) -> tuple[bytes, str]:  # Any: JSON objects
        collected = max(self._now(), attempts[-1]["observerTimings"]["completedAt"])
        return attested(self._context.terms, open_.intent, attempts, output, collected_at=collected), collected

    async def _accept(self, trace: str, sealed: _Sealed, space: Space | None = None) -> None:
        """Make outcome, accepted and complete durable, in one commit."""
        if sealed.outcome is not None:
            self._enqueue(RecordKind.OUTCOME, trace, sealed.outcome, space)
        reservation = None if space is None else space.reservation
        body = canonical_member("trace", sealed.envelope)
        sequence = self._journal.enqueue(RecordKind.ACCEPTED, trace, body, reservation=reservation)
        self._ledger.note(RecordKind.ACCEPTED, trace, {}, sequence)
        await self._append(RecordKind.COMPLETE, trace, {"traceId": trace, "collectedAt": sealed.collected_at}, space)
        self._progress.finished(self._ledger.by_trace[trace].final_state)

    async def complete(self, trace: str) -> None:
        """Write the completion of an execution that was accepted just before a crash."""
        await self._append(RecordKind.COMPLETE, trace, {"traceId": trace, "collectedAt": self._now()})

    def _closed(self) -> bool:
        return self._context.wall_ms() >= self._end_ms

    async def _execute(self, pair: Pair, key: ExecutionKey, queued_ns: int, lane: Lane) -> None:
        context, target = self._context, self._context.target(key.profile_id)
        request = request_of(pair.case, context.plan, target, context.calls[key.profile_id].profile)
        identity = context.terms.payload_key.identify(request.body)
        trace, decision = execution_ids(context.terms, pair, target, identity)
        open_ = self._ledger.open.get(trace)
        if open_ is None:
            intent = signed_intent(context.terms, pair, target, trace=trace, decision=decision, issued_at=self._now())
            await self._append(
                RecordKind.INTENT,
                trace,
                {
                    "caseId": key.case_id,
                    "groupId": pair.case.group_id,
                    "replicateId": key.replicate_id,
                    "replicateIndex": pair.planned.replicate_index,
                    "profileId": key.profile_id,
                    "requestIdentity": identity.to_json(),
                    "requestBytes": len(request.body),
                    "trace": intent,
                },
            )
            open_ = self._ledger.open[trace]
        generation = generation_of(pair.case, context.plan, target)
        while not open_.attempts or await self._again(pair.planned, key.profile_id, trace, open_, lane):
            if not await self._attempt(generation, key.profile_id, trace, open_, queued_ns, lane):
                return
            queued_ns = context.clock.now_ns()

    async def _again(self, planned: PlannedPair, profile_id: str, trace: str, open_: OpenExecution, lane: Lane) -> bool:
        """After an attempt that was certainly not sent: whether to make another now. If never, the reason is recorded."""
        made, context = len(open_.attempts), self._context
        may = made < context.plan.maximum_attempts and repeatable(open_.code) and not lane.stopped
        if may and await self._stop.wait(self._pause(made)):
            return False
        if may and not lane.stopped and not self._closed():
            return True
        if may and not lane.stopped:
            await self.leave_out(planned, profile_id, FaultReason.WINDOW_CLOSED)
            return False
        reason, category = not_sent_reason(open_.code)
        self._fault(planned, profile_id, trace, reason=reason, category=category, attempts=made)
        await self._journal.flush()
        return False

    async def _attempt(
        self, generation: Generation, profile_id: str, trace: str, open_: OpenExecution, queued_ns: int, lane: Lane
    ) -> bool:
        """One attempt with its durable outcome, and the envelope where it may have been sent; True where it was not sent."""
        context, number, begun_at = self._context, len(open_.attempts) + 1, self._now()
        identity = attempt_id(context.terms.payload_key, trace_id=trace, attempt_number=number)
        not_before = (
            open_.attempts[-1]["observerTimings"]["completedAt"]
            if open_.attempts
            else open_.intent["dispatchIntent"]["issuedAt"]
        )
        space = Space(self._journal, call_bytes(generation.max_tokens, open_))
        cancelled: InvocationCancelled | None = None
        try:
            prepared = self._prepare(generation, profile_id)
            try:
                outcome = await self._dispatch(
                    prepared, profile_id, trace, identity, number, queued_ns, space, not_before=not_before
                )
            except InvocationCancelled as error:
                if open_.lease is None:
                    raise
                outcome, cancelled = error.outcome, error
            except NotLeased:
                return False
            _note_refusal(lane, outcome)
            not_sent = outcome.state is DispatchState.NOT_SENT
            observed = partial(
                attempt_of,
                outcome,
                context.target(profile_id),
                attempt_id=identity,
                number=number,
                begun_at=begun_at,
                ended_at=self._now(),
                not_before=not_before,
                cost_model=context.cost_model,
            )
            if not_sent:
                await self._append(RecordKind.OUTCOME, trace, outcome_body(trace, observed(), outcome), space)
            else:
                await self._accept(trace, self._observed(trace, open_, observed, outcome), space)
        finally:
            space.release()
        if cancelled is not None:
            raise cancelled
        return not_sent

    def _observed(
        self, trace: str, open_: OpenExecution, attempt: Callable[[], dict[str, Any]], outcome: InvocationOutcome
    ) -> _Sealed:  # Any: a JSON object
        """What a sent call came to, ready to be written; ``sent_unknown`` where that cannot stand in an envelope."""
        try:
            return self._sealed(open_, outcome_body(trace, attempt(), outcome))
        except Exception:  # noqa: BLE001 - the boundary behind which a sent call always has an outcome; nothing is written yet
            target = self._context.target(self._ledger.by_trace[trace].key.profile_id)
            unknown = unknown_attempt(open_.lease or {}, target, settled_at=self._now(), category=Category.INTERNAL)
            return self._sealed(open_, outcome_body(trace, unknown))

    def _prepare(self, generation: Generation, profile_id: str) -> PreparedInvocation:
        context, call = self._context, self._context.calls[profile_id]
        return prepare(
            call,
            generation,
            payload_key=context.terms.payload_key,
            secrets=context.secrets,
            clock=context.clock,
            deadline_ms=min(context.plan.attempt_timeout_ms, call.limits.deadline_ms),
        )

    async def _dispatch(
        self,
        prepared: PreparedInvocation,
        profile_id: str,
        trace: str,
        attempt: str,
        number: int,
        queued_ns: int,
        space: Space,
        *,
        not_before: str,
    ) -> InvocationOutcome:
        """Make the call; ``NotLeased`` where nothing may be sent any more."""

        async def lease() -> None:
            may = await self._standing.holds()
            if not may or self._stop.requested or self._closed() or self._journal.failed:
                raise NotLeased
            space.take()
            issued = max(self._now(), not_before)
            await self._append(
                RecordKind.LEASE,
                trace,
                {
                    "traceId": trace,
                    "profileId": profile_id,
                    "attemptId": attempt,
                    "attemptNumber": number,
                    "issuedAt": issued,
                    "expiresAt": timestamp_of_ms(timestamp_ms(issued) + prepared.deadline_ms),
                    "deadlineMs": prepared.deadline_ms,
                    "requestBytes": prepared.request_bytes,
                    "requestIdentity": prepared.request_identity.to_json(),
                    "httpLimitsDigest": self._context.calls[profile_id].limits.digest,
                },
            )
            if self._journal.failed:  # a later commit failed while this task waited for its turn
                raise NotLeased

        return await dispatch(prepared, lease=lease, queued_ns=queued_ns, network=self._context.network)

    def _pause(self, made: int) -> float:
        return min(MAX_RETRY_BACKOFF_S, 0.05 * 2.0**made) * self._jitter.uniform(0.5, 1.0)

    def _fault(
        self,
        planned: PlannedPair,
        profile_id: str,
        trace: str | None,
        *,
        reason: FaultReason,
        category: Category | None,
        attempts: int,
    ) -> None:
        fault = fault_of(
            self._context.plan,
            planned,
            profile_id,
            trace_id=trace,
            reason=reason,
            category=category,
            attempts=attempts,
            recorded_at=self._now(),
        )
        self._enqueue(RecordKind.FAULT, trace or "", fault.to_json(), None)
        self._progress.finished(fault.state)

    async def _append(
        self, kind: RecordKind, trace: str, body: dict[str, Any], space: Space | None = None
    ) -> None:  # Any: a JSON object
        """Make a record durable, then let the ledger see it."""
        sequence = await self._journal.append(
            kind, trace, body, reservation=None if space is None else space.reservation
        )
        self._ledger.note(kind, trace, body, sequence)

    def _enqueue(
        self, kind: RecordKind, trace: str, body: dict[str, Any], space: Space | None
    ) -> None:  # Any: a JSON object
        """Write a record that the next append makes durable with itself."""
        sequence = self._journal.enqueue(kind, trace, body, reservation=None if space is None else space.reservation)
        self._ledger.note(kind, trace, body, sequence)

    def _now(self) -> str:
        return timestamp_of_ms(self._context.wall_ms())


def _note_refusal(lane: Lane, outcome: InvocationOutcome) -> None:
    lane.saw(refused=outcome.exchange.status in REFUSED_STATUS or outcome.exchange.code is Code.CONNECT_REFUSED)
