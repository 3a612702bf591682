"""The smallest collector with the right order of records, and the bugs that a crash test must catch.

Order of one call: intent, connect, reserve, lease, send, outcome, accepted, complete. A lease without an outcome is
settled as unknown and never sent again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tasc_collector.journal import FileSystem, Journal, JournalRecord, RecordKind
from tests.support.crash_world import BINDING, KEY

_RESERVE_BYTES = 4096


class Bug(StrEnum):
    """A defect that can be built into the order of records."""

    LEASE_AFTER_SEND = "lease after send"
    RESEND_ON_LEASE = "resend on lease"


class World(Protocol):
    """What a collector acts on: a model of a machine, or this one."""

    fs: FileSystem
    folder: Path

    async def connect(self, execution: str) -> None:
        """Open the connection of one call."""

    async def send(self, execution: str, *, journal_failed: bool) -> None:
        """Send the call and wait for its answer."""

    async def acknowledge(self, execution: str) -> None:
        """Tell the judge that the accepted record is durable."""


class ToyRunner:
    """Runs ``executions`` calls once each; call it as a collector of ``crash_world``."""

    def __init__(
        self, bug: Bug | None = None, *, concurrency: int = 4, segment_bytes: int = 4096, grow_bytes: int = 2048
    ) -> None:
        self._bug, self._concurrency, self._sizes = bug, concurrency, (segment_bytes, grow_bytes)

    async def __call__(self, process: World, executions: int) -> None:
        seen: dict[str, set[RecordKind]] = defaultdict(set)

        def fold(record: JournalRecord) -> None:
            seen[record.trace_id].add(record.kind)

        segment_bytes, grow_bytes = self._sizes
        with Journal.open(
            process.folder,
            BINDING,
            KEY,
            fs=process.fs,
            on_record=fold,
            segment_bytes=segment_bytes,
            grow_bytes=grow_bytes,
        ) as journal:
            turn = asyncio.Semaphore(self._concurrency)

            async def one(execution: str) -> None:
                async with turn:
                    await self._execute(process, journal, execution, seen[execution])

            async with asyncio.TaskGroup() as group:
                for number in range(executions):
                    group.create_task(one(f"e{number}"))

    async def _execute(self, process: World, journal: Journal, execution: str, seen: set[RecordKind]) -> None:
        if RecordKind.COMPLETE in seen:
            return
        leased = RecordKind.LEASE in seen
        if leased and RecordKind.OUTCOME not in seen and self._bug is not Bug.RESEND_ON_LEASE:
            await journal.append(RecordKind.SETTLEMENT, execution, {"state": "sent_unknown"})
            await journal.append(RecordKind.OUTCOME, execution, {"state": "sent_unknown"})
        elif RecordKind.OUTCOME not in seen:
            await self._call(process, journal, execution, intended=RecordKind.INTENT in seen)
        if RecordKind.ACCEPTED not in seen:
            await journal.append(RecordKind.ACCEPTED, execution, {"trace": "x" * 300})
            await process.acknowledge(execution)
        await journal.append(RecordKind.COMPLETE, execution, {})

    async def _call(self, process: World, journal: Journal, execution: str, *, intended: bool) -> None:
        if not intended:
            await journal.append(RecordKind.INTENT, execution, {"case": execution})
        await process.connect(execution)
        with journal.reserve(_RESERVE_BYTES) as reservation:
            if self._bug is Bug.LEASE_AFTER_SEND:
                await process.send(execution, journal_failed=journal.failed)
                await journal.append(RecordKind.LEASE, execution, {"attempt": 1})
            else:
                await journal.append(RecordKind.LEASE, execution, {"attempt": 1})
                await process.send(execution, journal_failed=journal.failed)
            await journal.append(RecordKind.OUTCOME, execution, {"state": "completed"}, reservation=reservation)
