"""The project's own runner as a collector of the crash harness: real plan, executor, ledger, settlement and transport.

It runs against a server in memory whose count outlives the process. What the collector was told is durable, and whether the
journal had failed when a lease came back, is watched at the journal's door, from outside.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tasc_collector.journal import Journal, JournalRecord, RecordKind
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.runner import run_window
from tasc_collector.shadow.scheduler import StopSignal
from tests.support.crash_world import FOLDER, JournalOf, Killed, Process
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import Setup, run_context

ORIGINS = {"a": "http://127.0.0.1:8001", "b": "http://127.0.0.1:8002"}
_UNLEASED: ContextVar[bool] = ContextVar("unleased", default=True)
"""Per task: nothing may be sent now, because no lease came back, or the journal had failed when it did."""


def is_unknown(record: JournalRecord) -> bool:
    """An outcome that says ``sent_unknown``."""
    return record.kind is RecordKind.OUTCOME and record.body.get("attempt", {}).get("dispatchState") == "sent_unknown"  # type: ignore[union-attr]  # an object


class RealRunner:
    """``run_window`` over ``cases`` prompts and two profiles; a collector of ``crash_world``.

    Args:
        cases: prompts; each is one execution per profile.
        plan: fields of the plan that differ.
        segment_bytes: small ones make kills strike in rotations.
        grow_bytes: step in which space is reserved.
        settle_first: a resume first settles without sending, as an operator may.
    """

    def __init__(
        self,
        cases: int = 2,
        *,
        plan: Mapping[str, Any] | None = None,
        segment_bytes: int = 6_000,
        grow_bytes: int = 4_096,
        settle_first: bool = False,
    ) -> None:
        setup = Setup(ORIGINS, cases=[f"case {number}" for number in range(cases)], plan=plan or {})
        self.context = run_context(setup, FOLDER, segment_bytes=segment_bytes, grow_bytes=grow_bytes)
        self.executions = 2 * cases
        self.journal = JournalOf(self.context.binding, self.context.journal_key, is_unknown)
        self._settle_first = settle_first

    async def __call__(self, process: Process, executions: int) -> None:
        """Collect the window; ``executions`` is the number that was made."""
        assert executions == self.executions
        server = MemoryServer(process.step, process.machine.sent)
        server.on_request = lambda: _note_send(process)
        context = dataclasses.replace(self.context, fs=process.fs, network=server)
        with _watched(process):
            if self._settle_first:
                await self._run(context, send=False)
            result = await self._run(context, send=True)
        if process.dead:
            raise Killed
        assert result == "complete", result

    async def _run(self, context: RunContext, *, send: bool) -> str:
        result = await run_window(context, StopSignal(), show=lambda _: None, send=send)
        assert sum(result.states.values()) == result.planned
        return result.status


def real_runner(rng: random.Random) -> RealRunner:
    """A runner of a schedule: its own number of calls, concurrency, isolation, load and sizes."""
    load = rng.choice(
        (
            {"kind": "closed", "concurrency": 1},
            {"kind": "closed", "concurrency": 4},
            {"kind": "open", "arrival": "constant", "rate_per_second": 20_000.0, "maximum_concurrency": 8},
        )
    )
    plan = {
        "load_model": load,
        "pair_isolation": rng.choice(("serial", "overlap")),
        "warm_up_calls_per_profile": rng.choice((0, 1)),
    }
    return RealRunner(
        rng.randint(2, 3),
        plan=plan,
        segment_bytes=rng.choice((6_000, 20_000)),
        grow_bytes=rng.choice((4_096, 30_000)),
        settle_first=rng.random() < 0.5,
    )


def _note_send(process: Process) -> None:
    process.machine.sent_after_failure += _UNLEASED.get()
    _UNLEASED.set(True)


@contextmanager
def _watched(process: Process) -> Iterator[None]:
    """Note what ``Journal.append`` tells the runner."""
    append = Journal.append

    async def watched(
        journal: Journal, kind: RecordKind, trace_id: str, body: Mapping[str, Any], **options: Any
    ) -> int:
        sequence = await append(journal, kind, trace_id, body, **options)
        if kind is RecordKind.LEASE:
            _UNLEASED.set(journal.failed)
        elif kind is RecordKind.COMPLETE:
            await process.acknowledge(trace_id)
        return sequence

    Journal.append = watched  # type: ignore[method-assign]  # watched, not replaced
    try:
        yield
    finally:
        Journal.append = append  # type: ignore[method-assign]  # as it was
