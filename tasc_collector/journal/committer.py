"""Group commit: one thread writes and syncs what has gathered, and wakes everybody who waits for it.

Rules:
1. Under ``_lock`` a record gets its space, its sequence, its chain and its place in the gathering batch, in one step.
   So the order in the file is the order of the calls, whichever thread they came from.
2. The thread takes the whole batch, writes it, syncs once, then wakes the waiters. The next batch gathers meanwhile.
   The tasks of a loop are woken one after another in one callback. After a commit of several records the thread lets
   them take their turn, at most as long as that commit took: those who append again share one commit instead of
   falling into two halves that wait for each other.
   A record that nobody waits for begins no commit before the running task yields.
3. Between two batches, and only there, it moves to the next segment or reserves ahead. ``_growing`` keeps callers that
   need space at once away from that.
4. After the first error nothing is written: waiting and later records fail with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeAlias

from tasc_collector import limits
from tasc_collector.errors import JournalError
from tasc_collector.journal.format import (
    HASH_BYTES,
    RECORD_OVERHEAD_BYTES,
    RecordKind,
    RecordMac,
    checked_trace,
    encode_record,
)
from tasc_collector.journal.problems import error_name, journal_closed, journal_failed, journal_full
from tasc_collector.journal.writer import NoSpace, SegmentWriter

Waiter: TypeAlias = asyncio.AbstractEventLoop | threading.Event | None
"""Who is woken when a record is durable: tasks of a loop, a thread, or nobody."""


class Commit(asyncio.Future["str | None"]):
    """End of one batch for the tasks of one loop: None, or the name of the journal's first error.

    All of them await the same one, so it cannot be cancelled: a task that is cancelled meanwhile is told so when the
    fate of its record is known.

    Args:
        loop: whose tasks await it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._waiting: deque[tuple[Callable[[Commit], object], Context]] = deque()

    def cancel(self, msg: object = None) -> bool:
        """Refused; the task's own cancellation stays requested."""
        return False

    def add_done_callback(self, fn: Callable[[Commit], object], /, *, context: Context | None = None) -> None:
        """Called by a task that begins to wait; ``settle`` wakes it."""
        self._waiting.append((fn, copy_context() if context is None else context))

    def settle(self, failure: str | None) -> None:
        """End it and let each waiting task go on, in their order; runs in the loop, outside of every task.

        A callback of the loop for each would add a tenth to the cost of an append. A task that ends the loop
        (``KeyboardInterrupt``) leaves those after it to the loop.
        """
        self.set_result(failure)
        try:
            while self._waiting:
                go_on, context = self._waiting.popleft()
                context.run(go_on, self)
        finally:
            for go_on, context in self._waiting:
                self.get_loop().call_soon(go_on, self, context=context)


class Reservation:
    """Space in a journal that only its holder's records use; ``release`` gives back what is left.

    A context manager that releases at its end.

    Args:
        committer: where the space is.
        size: bytes.
    """

    __slots__ = ("_committer", "remaining_bytes")

    def __init__(self, committer: Committer, size: int) -> None:
        self._committer = committer
        self.remaining_bytes = size

    def release(self) -> None:
        """Give back what was not used; may be called again."""
        self._committer.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _Batch:
    """Records that are committed together, and who waits for them."""

    __slots__ = ("announced", "commits", "events", "frames", "had_turn", "last_sequence")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.commits: dict[asyncio.AbstractEventLoop, Commit] = {}
        self.events: list[threading.Event] = []
        self.last_sequence = 0
        self.announced = False
        self.had_turn = threading.Event()

    def add_waiter(self, waiter: Waiter) -> Commit | None:
        if waiter is None:
            return None
        if isinstance(waiter, threading.Event):
            self.events.append(waiter)
            return None
        commit = self.commits.get(waiter)
        if commit is None:
            commit = self.commits[waiter] = Commit(waiter)
        return commit

    def wake(self, failure: str | None) -> None:
        for event in self.events:
            event.set()
        for loop, commit in self.commits.items():
            with contextlib.suppress(RuntimeError):  # that loop was closed, and its tasks with it
                loop.call_soon_threadsafe(self._settle, commit, failure)

    def _settle(self, commit: Commit, failure: str | None) -> None:
        commit.settle(failure)
        self.had_turn.set()

    def await_turn(self, seconds: float) -> None:
        """Wait until the tasks of one loop that were woken have had their turn, at most so long.

        The bound is needed: a task that closes the journal waits in its turn for the thread that waits here. That of
        ``SimpleQueue.get`` is none, because CPython up to 3.13 waits for ever where a short timeout ends before its lock
        is tried.
        """
        self.had_turn.wait(seconds)


class Committer:
    """See the rules of this module. The thread runs from construction to ``stop``.

    Args:
        writer: the open segment.
        mac: the journal's MAC.
        records: number of records that are there.
        head: chain head after them, 32 bytes.
        segment_bytes: size beyond which the next segment is begun.
        grow_bytes: step in which space is reserved.

    Attributes:
        failure: name of the first error, or None.
        durable: sequence of the last record on the disk.
        durable_head: chain head after it.
        groups: number of commits.
    """

    def __init__(
        self, writer: SegmentWriter, mac: RecordMac, records: int, head: bytes, *, segment_bytes: int, grow_bytes: int
    ) -> None:
        self._writer, self._mac = writer, mac
        self._segment_bytes, self._grow_bytes = segment_bytes, grow_bytes
        self._next_segment_at = segment_bytes
        self._sequence = self.durable = records
        self._head = self.durable_head = head
        self._room = writer.capacity - writer.offset
        self.failure: str | None = None
        self.groups = 0
        self._stopped = False
        self._batch = _Batch()
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()
        self._growing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="journal-committer", daemon=True)
        self._thread.start()

    def put(
        self, kind: RecordKind, trace_id: str, body: bytes, reservation: Reservation | None, waiter: Waiter
    ) -> tuple[int, Commit | None]:
        """Add a record to the gathering batch.

        Args:
            kind: what the record says.
            trace_id: ASCII.
            body: canonical JSON.
            reservation: space set aside for it, used first.
            waiter: who is woken when it is durable or has failed.

        Returns:
            The record's sequence, and what a task awaits where the waiter is its loop.

        Raises:
            JournalFull: there is no space.
            JournalFailed: rule 4.
            InputError: a bound is broken, or the committer has stopped.
        """
        trace = checked_trace(trace_id, body)
        size = RECORD_OVERHEAD_BYTES + len(trace) + len(body)
        while True:
            with self._lock:
                self._refuse_if_ended()
                reserved = min(size, reservation.remaining_bytes) if reservation else 0
                if self._room >= size - reserved:
                    frame, self._head = encode_record(kind, self._sequence + 1, trace, body, self._mac, self._head)
                    self._sequence += 1
                    self._room -= size - reserved
                    if reservation:
                        reservation.remaining_bytes -= reserved
                    return self._sequence, self._gather(frame, waiter)
            self._grow(size - reserved)

    def join(self, waiter: Waiter) -> tuple[int, Commit | None]:
        """Have a waiter woken once all records so far are durable; returns as ``put`` does, for the last record.

        Raises:
            JournalFailed: rule 4.
            InputError: the committer has stopped.
        """
        with self._lock:
            self._refuse_if_ended()
            return self._sequence, self._gather(None, waiter)

    def require_durable(self, sequence: int) -> None:
        """Raise ``JournalFailed`` unless the record is on the disk; for a thread that was woken."""
        with self._lock:
            if self.durable < sequence:
                raise journal_failed(self.failure)

    def reserve(self, size: int) -> Reservation:
        """Set space aside.

        Raises:
            JournalFull: there is not so much; what was reserved before still is.
            JournalFailed: rule 4.
            InputError: the committer has stopped.
        """
        while True:
            with self._lock:
                self._refuse_if_ended()
                if self._room >= size:
                    self._room -= size
                    return Reservation(self, size)
            self._grow(size)

    def release(self, reservation: Reservation) -> None:
        """Take back what is left of a reservation."""
        with self._lock:
            self._room += reservation.remaining_bytes
            reservation.remaining_bytes = 0

    def stop(self) -> bool:
        """Refuse new records, write those that wait, end the thread; False where that was done before."""
        with self._lock:
            if self._stopped:
                return False
            self._stopped = True
        self._wake.put(True)
        self._wake.put(False)
        self._thread.join()
        return True

    def _gather(self, frame: bytes | None, waiter: Waiter) -> Commit | None:
        batch = self._batch
        if waiter is not None:
            if not batch.announced:
                batch.announced = True
                self._wake.put(True)
        elif not batch.frames:
            self._wake_soon()
        if frame is not None:
            batch.frames.append(frame)
            batch.last_sequence = self._sequence
        return batch.add_waiter(waiter)

    def _wake_soon(self) -> None:
        try:
            asyncio.get_running_loop().call_soon(self._wake.put, True)
        except RuntimeError:  # no loop runs in this thread
            self._wake.put(True)

    def _refuse_if_ended(self) -> None:
        if self.failure is not None:
            raise journal_failed(self.failure)
        if self._stopped:
            raise journal_closed()

    def _run(self) -> None:
        while self._wake.get():
            with self._lock:
                batch, self._batch = self._batch, _Batch()
            start = time.monotonic()
            try:
                if self.failure is None and batch.frames:
                    self._writer.write(b"".join(batch.frames))
                    self.groups += 1
            except BaseException as error:  # noqa: BLE001  # the thread's boundary: who waits must be woken
                self._fail(error_name(error))
            if self.failure is not None:
                batch.wake(self.failure)
                continue
            if batch.frames:
                with self._lock:
                    self.durable, self.durable_head = batch.last_sequence, batch.frames[-1][-HASH_BYTES:]
            seconds = time.monotonic() - start
            batch.wake(None)
            self._keep_room()
            if batch.commits and len(batch.frames) > 1:
                batch.await_turn(min(seconds, limits.JOURNAL_GATHER_MAX_SECONDS))

    def _keep_room(self) -> None:
        """Rule 3, so that callers seldom wait for space."""
        try:
            if self._writer.offset >= self._next_segment_at and self._writer.number < limits.JOURNAL_MAX_SEGMENTS:
                self._begin_next_segment()
            elif self._room < self._grow_bytes // 2:
                self._grow(self._grow_bytes // 2)
        except JournalError:
            return  # recorded; a full disk is told to the caller who needs the space
        except BaseException as error:  # noqa: BLE001  # the thread's boundary: later calls must fail
            self._fail(error_name(error))

    def _grow(self, minimum_bytes: int) -> None:
        """Reserve more space in the current segment, unless somebody just did."""
        with self._growing:
            with self._lock:
                if self.failure is not None:
                    raise journal_failed(self.failure)
                if self._room >= minimum_bytes:
                    return
            try:
                gained = self._writer.grow(minimum_bytes)
            except NoSpace:
                raise journal_full() from None
            except OSError as error:
                self._fail(error_name(error))
                raise journal_failed(error_name(error)) from None
            with self._lock:
                self._room += gained

    def _begin_next_segment(self) -> None:
        """Move to a segment that has at least the space which the current one still has.

        Space is promised all the time; the sum of what is promised and what is free does not change meanwhile.
        """
        with self._growing:
            left = self._writer.capacity - self._writer.offset
            try:
                space = self._writer.prepare(left, self.durable + 1, self.durable_head)
            except NoSpace:
                self._next_segment_at = self._writer.offset + self._segment_bytes
                return
            with self._lock:
                self._room += space - left
            self._writer.switch()
            self._next_segment_at = self._segment_bytes

    def _fail(self, name: str) -> None:
        with self._lock:
            self.failure = self.failure or name
            waiting, self._batch = self._batch, _Batch()
        waiting.wake(self.failure)
