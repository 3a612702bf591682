"""Running a window in a test, and reading what its journal says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.fault import CollectorFault
from tasc_collector.contracts.verification import verify_trace
from tasc_collector.journal import JournalRecord, RecordKind, scan
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.runner import RunResult, run_window
from tasc_collector.shadow.scheduler import StopSignal
from tasc_collector.wire.records import read_record
from tests.support.memory_disk import MemoryDisk, MemoryFileSystem
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import Setup, run_context, study_terms

FOLDER = Path("/runs/window-1")
ORIGINS = {"a": "http://127.0.0.1:8001", "b": "http://127.0.0.1:8002"}


def memory_run(
    server: MemoryServer | None = None, disk: MemoryDisk | None = None, *, setup: Setup | None = None, **changes: Any
) -> RunContext:
    """A window on a disk and a server in memory."""
    fs = MemoryFileSystem(disk or MemoryDisk())
    small = {"segment_bytes": 1 << 20, "grow_bytes": 1 << 16}
    return run_context(setup or Setup(ORIGINS), FOLDER, fs=fs, network=server or MemoryServer(), **{**small, **changes})


def run(
    context: RunContext, *, stop: StopSignal | None = None, send: bool = True, beside: Callable[[], Any] | None = None
) -> RunResult:
    """Run to its end; ``beside`` is a coroutine function that runs next to it."""

    async def both() -> RunResult:
        task = asyncio.create_task(run_window(context, stop or StopSignal(), show=lambda _: None, send=send))
        if beside is not None:
            await beside()
        return await task

    result = asyncio.run(both())
    assert sum(result.states.values()) == result.planned
    return result


def records(context: RunContext, kind: RecordKind | None = None) -> list[JournalRecord]:
    """The journal's records, of one kind or all."""
    found = scan(context.folder, context.binding, context.journal_key, fs=context.fs)
    return [record for record in found if kind in (None, record.kind)]


def envelopes(context: RunContext) -> list[TraceEnvelope]:
    """Accepted envelopes; each is valid, and both its signatures are right."""
    found = []
    for record in records(context, RecordKind.ACCEPTED):
        parsed = read_record(TraceEnvelope, canonical_bytes(record.body["trace"]))
        verify_trace(parsed, study_terms(context.wall_ms()))
        found.append(parsed.record)
    return found


def faults(context: RunContext) -> list[CollectorFault]:
    """Executions without an envelope."""
    return [
        CollectorFault.from_value(record.body, where="journal").record for record in records(context, RecordKind.FAULT)
    ]
