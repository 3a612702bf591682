"""The runner's promises one by one, against a server that counts. Crashes at every call are in tests/crash."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import itertools
import signal
from collections import Counter
from typing import Any

import pytest

from tasc_collector.contracts.protocol import RouteSignalDefinition
from tasc_collector.contracts.scalars import timestamp_ms
from tasc_collector.errors import DigestMismatch, InputError, JournalFailed, JournalFull, JournalLocked, NotAuthorized
from tasc_collector.journal import Journal, RecordKind
from tasc_collector.journal.lock import Owner
from tasc_collector.shadow import preflight, runner
from tasc_collector.shadow.arrivals import arrivals_digest
from tasc_collector.shadow.context import RunContext
from tasc_collector.shadow.runner import run_blocking, run_window
from tasc_collector.shadow.scheduler import Lane, StopSignal
from tests.support.crash_world import Fault, Killed, Machine, Process
from tests.support.memory_disk import MemoryDisk
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import HOUR_MS, Setup, SteppedClock
from tests.support.runs import FOLDER, ORIGINS, envelopes, faults, memory_run, records, run

ONE_AT_A_TIME = {"load_model": {"kind": "closed", "concurrency": 1}}


def window(**options: Any) -> Setup:
    return Setup(ORIGINS, **options)


def stopping_after(server: MemoryServer, calls: int) -> StopSignal:
    """A stop that is requested when the server has counted so many calls."""
    stop = StopSignal()
    server.on_request = lambda: stop.request("sigterm") if sum(server.sent.values()) == calls else None
    return stop


def interrupted(calls: int, **options: Any) -> tuple[RunContext, MemoryServer]:
    """A window whose first run was stopped after some calls."""
    server = MemoryServer()
    context = memory_run(server, setup=window(plan=ONE_AT_A_TIME, **options))
    result = run(context, stop=stopping_after(server, calls))
    assert (result.status, sum(server.sent.values())) == ("stopped", calls)
    server.on_request = lambda: None
    return context, server


# --- a whole run -----------------------------------------------------------------------------------------------------


def test_every_execution_is_sent_once_and_has_a_signed_envelope() -> None:
    server = MemoryServer()
    context = memory_run(server, setup=window(plan={"warm_up_calls_per_profile": 1}))
    result = run(context)
    assert (result.status, result.planned, result.states, result.sent_calls) == ("complete", 6, {"success": 6}, 8)
    assert len(server.sent) == 8 and set(server.sent.values()) == {1}
    found = envelopes(context)
    assert len({envelope.trace_id for envelope in found}) == 6, "and none for a warm-up call"
    assert all(envelope.attempts[-1].token_usage.output.value == 3 for envelope in found)  # type: ignore[union-attr]  # a success has usage


def test_a_lease_is_durable_before_its_call_and_its_outcome_after() -> None:
    context = memory_run(setup=window(plan=ONE_AT_A_TIME))
    run(context)
    order: dict[str, list[str]] = {}
    for record in records(context):
        order.setdefault(record.trace_id, []).append(record.kind.value)
    order.pop("")
    assert set(map(tuple, order.values())) == {("intent", "lease", "outcome", "accepted", "complete")}


def test_a_sealed_window_is_read_again_and_nothing_is_sent() -> None:
    server = MemoryServer()
    context = memory_run(server)
    first, before = run(context), records(context)
    again = run(context)
    assert (again.status, again.states, again.sent_calls, again.seal) == ("complete", first.states, 0, first.seal)
    assert records(context) == before and sum(server.sent.values()) == 6


# --- stop, cancel, resume -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", range(1, 6))
def test_a_stopped_run_is_finished_by_the_next_one(calls: int) -> None:
    context, server = interrupted(calls)
    result = run(context)
    assert (result.status, result.resumed, result.sent_calls) == ("complete", True, 6 - calls)
    assert result.states == {"success": 6} and set(server.sent.values()) == {1}


def test_a_stop_during_a_pause_leaves_the_execution_for_the_next_run() -> None:
    server, stop = MemoryServer(refuse=True), StopSignal()
    context = memory_run(server, setup=window(plan=ONE_AT_A_TIME))
    connect = server.connect

    async def refused_then_stopped(*arguments: Any) -> Any:
        stop.request("sigterm")
        return await connect(*arguments)

    server.connect = refused_then_stopped  # type: ignore[method-assign]  # the moment of the stop
    assert run(context, stop=stop).states == {"pending": 6}
    assert [record.body["attempt"]["dispatchState"] for record in records(context, RecordKind.OUTCOME)] == ["not_sent"]  # type: ignore[call-overload,index]
    resumed = dataclasses.replace(context, network=MemoryServer())
    assert run(resumed).states == {"success": 6}
    assert sorted(len(envelope.attempts) for envelope in envelopes(context)) == [1, 1, 1, 1, 1, 2]


def test_attempts_of_an_earlier_run_count() -> None:
    """A crash between the last attempt's outcome and its fault must not buy another attempt."""
    machine = Machine()
    server = MemoryServer(refuse=True)
    setup = window(cases=["one"], plan={**ONE_AT_A_TIME, "maximum_attempts": 1})
    context = memory_run(server, machine.disk, setup=setup)
    stop, append = StopSignal(), Journal.append

    async def stop_after_outcome(journal: Journal, kind: RecordKind, *arguments: Any, **options: Any) -> int:
        sequence = await append(journal, kind, *arguments, **options)
        if kind is RecordKind.OUTCOME:
            raise asyncio.CancelledError
        return sequence

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "append", stop_after_outcome)
        with pytest.raises(asyncio.CancelledError):
            run(context, stop=stop)
    assert faults(context) == []
    result = run(context)
    assert result.states == {"not_sent": 2} and server.connects == 2
    assert {fault.attempts for fault in faults(context)} == {1}


def test_a_cancelled_run_drains_and_says_so() -> None:
    server = MemoryServer()
    context = memory_run(server, setup=window(plan={"load_model": {"kind": "closed", "concurrency": 3}}))

    async def cancelled() -> None:
        task = asyncio.create_task(run_window(context, StopSignal(), show=lambda _: None))
        server.on_request = lambda: task.cancel() if sum(server.sent.values()) == 2 else None
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert len(envelopes(context)) == sum(server.sent.values()) < 6, "what was in flight was written"
    server.on_request = lambda: None
    assert run(context).states == {"success": 6} and set(server.sent.values()) == {1}


def test_a_run_cancelled_twice_writes_that_its_calls_may_have_been_sent() -> None:
    server = MemoryServer(silent=True)
    context = memory_run(server, setup=window(plan={"load_model": {"kind": "closed", "concurrency": 2}}))

    async def cancelled_twice() -> None:
        task = asyncio.create_task(run_window(context, StopSignal(), show=lambda _: None))
        sent = asyncio.Event()
        server.on_request = lambda: sent.set() if sum(server.sent.values()) == 2 else None
        await sent.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled_twice())
    found = envelopes(context)
    assert [(envelope.attempts[-1].dispatch_state, envelope.attempts[-1].abort_lifecycle) for envelope in found] == [
        ("sent_unknown", "abort-ambiguous")
    ] * 2
    result = run(dataclasses.replace(context, network=MemoryServer(sent=server.sent)))
    assert result.states == {"sent_unknown": 2, "success": 4} and set(server.sent.values()) == {1}


def on_host(patch: pytest.MonkeyPatch, name: str) -> None:
    """What follows runs on a host of this name."""
    patch.setattr("tasc_collector.journal.lock.platform.node", lambda: name)


def killed_in_a_call(machine: Machine, server: MemoryServer) -> Setup:
    """A window whose first run was killed while it waited for its first answer."""
    process = Process(machine, Fault(1, "kill", frozenset({"net-receive"})))
    setup = window(plan=ONE_AT_A_TIME, at_ms=SteppedClock().wall_ns() // 1_000_000)
    killed = memory_run(MemoryServer(process.step, server.sent), machine.disk, setup=setup)
    with pytest.raises((Killed, JournalFailed)):
        run(dataclasses.replace(killed, fs=process.fs))
    machine.disk.end_process()
    return setup


OPEN, SETTLED = {"success": 5, "pending": 1}, {"success": 5, "sent_unknown": 1}


def test_a_lease_from_this_host_is_settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, server = Machine(), MemoryServer()
    on_host(monkeypatch, "host-1")
    setup = killed_in_a_call(machine, server)
    _rewrite_owner(machine.disk, b'{"host":"hos')  # torn between its truncation and its write: the admission tells
    assert run(memory_run(server, machine.disk, setup=setup)).states == SETTLED
    assert set(server.sent.values()) == {1}


@pytest.mark.parametrize(("host", "later_ms"), [("host-1", 0), ("host-2", 6_000), ("host-3", 6_000)])
def test_a_lease_from_another_host_waits_for_its_expiry_however_many_runs_there_are(
    monkeypatch: pytest.MonkeyPatch, host: str, later_ms: int
) -> None:
    machine, server = Machine(), MemoryServer()
    on_host(monkeypatch, "host-1")
    setup = killed_in_a_call(machine, server)
    on_host(monkeypatch, "host-2")
    for _ in range(3):
        result = run(memory_run(server, machine.disk, setup=setup))
        assert (result.status, result.states) == ("partial", OPEN), "its sender may still wait for the answer"
    on_host(monkeypatch, host)
    assert run(memory_run(server, machine.disk, setup=setup, clock=SteppedClock(later_ms))).states == SETTLED
    assert set(server.sent.values()) == {1}


@pytest.mark.parametrize(
    ("owner", "here", "states"),
    [
        (None, "host-1", SETTLED),
        (None, "host-2", OPEN),
        (b"", "host-1", OPEN),
        (b'{"host":"host-1","pi', "host-1", OPEN),
    ],
    ids=["same-host", "another-host", "empty", "torn"],
)
def test_where_the_admission_names_no_host_the_lock_file_tells_once(
    monkeypatch: pytest.MonkeyPatch, owner: bytes | None, here: str, states: dict[str, int]
) -> None:
    """Journals that were begun before admissions had the field."""
    machine, server, admission = Machine(), MemoryServer(), runner._admission

    def older(*arguments: Any, **options: Any) -> dict[str, Any]:
        return {name: value for name, value in admission(*arguments, **options).items() if name != "host"}

    on_host(monkeypatch, "host-1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_admission", older)
        setup = killed_in_a_call(machine, server)
    if owner is not None:
        _rewrite_owner(machine.disk, owner)
    on_host(monkeypatch, here)
    for _ in range(2):
        assert run(memory_run(server, machine.disk, setup=setup)).states == states
    assert run(memory_run(server, machine.disk, setup=setup, clock=SteppedClock(6_000))).states == SETTLED


def _rewrite_owner(disk: MemoryDisk, text: bytes) -> None:
    inode = disk.names[FOLDER / "owner.lock"]
    inode.seen[:] = inode.kept[:] = text


def test_two_runs_at_once_are_one_run_and_a_refusal() -> None:
    disk, server = MemoryDisk(), MemoryServer()
    context = memory_run(server, disk)
    with Journal.open(
        FOLDER,
        context.binding,
        context.journal_key,
        fs=context.fs,
        owner=Owner(7, "host-1", "2026-01-01T00:00:00.000Z"),
    ):
        with pytest.raises(JournalLocked, match="process 7 on host-1"):
            run(context)
    assert server.sent == {}


def test_cases_may_come_in_two_runs_and_only_planned_ones() -> None:
    server = MemoryServer()
    context = memory_run(server)
    partial = dataclasses.replace(context, cases=context.cases[:1])
    assert run(partial).states == {"success": 2, "pending": 4}
    changed = dataclasses.replace(context.cases[1], prompt="changed")
    with pytest.raises(DigestMismatch, match="case-00002"):
        run(dataclasses.replace(context, cases=(changed,)))
    assert run(context).states == {"success": 6} and set(server.sent.values()) == {1}


# --- time -----------------------------------------------------------------------------------------------------------


def test_after_the_window_the_rest_is_not_attempted_and_everything_adds_up() -> None:
    context, server = interrupted(2)
    later = dataclasses.replace(context, clock=SteppedClock(2 * HOUR_MS), cases=())
    result = run(later)
    assert (result.status, result.states, result.reasons) == (
        "complete",
        {"success": 2, "not_attempted": 4},
        {"window-closed": 4},
    )
    assert sum(server.sent.values()) == 2
    assert {fault.reason.value for fault in faults(later)} == {"window-closed"}
    assert run(later).states == result.states


def test_a_window_that_ends_during_the_run_starts_no_further_call() -> None:
    server, clock = MemoryServer(), SteppedClock(0)
    context = memory_run(server, setup=window(plan=ONE_AT_A_TIME), clock=clock)
    server.on_request = lambda: clock.__init__(2 * HOUR_MS) if sum(server.sent.values()) == 3 else None  # type: ignore[misc]  # the time jumps
    result = run(context)
    assert result.states == {"success": 3, "not_attempted": 3} and sum(server.sent.values()) == 3


def test_a_run_waits_for_the_start_no_longer_than_a_minute() -> None:
    server = MemoryServer()
    with pytest.raises(NotAuthorized, match="the window starts in 2") as refused:
        run(memory_run(server, setup=window(starts_ms=240_000)))
    assert "run the command again at" in str(refused.value)
    shown: list[dict[str, int]] = []
    soon = memory_run(server, setup=window(starts_ms=900))
    result = asyncio.run(run_window(soon, StopSignal(), show=lambda snapshot: shown.append(snapshot.states)))
    assert result.states == {"success": 6} and shown[0] == {"starts in s": 1}


@pytest.mark.parametrize("step_ms", [-1_800_000, 1_800_000])
def test_a_wall_clock_that_is_set_bends_no_duration_and_breaks_no_envelope(step_ms: int) -> None:
    server, clock = MemoryServer(), SteppedClock(0)
    context = memory_run(server, setup=window(plan=ONE_AT_A_TIME), clock=clock)
    intents = iter((False, True, True, True, True, True))

    def between_intent_and_send(name: str) -> None:
        if name == "net-connect" and next(intents):
            clock.__init__(step_ms)  # type: ignore[misc]  # somebody sets the clock

    server.__init__(between_intent_and_send)  # type: ignore[misc]  # the same server
    result = run(context)
    assert result.states == {"success": 6}
    for envelope in envelopes(context):
        timings = envelope.attempts[0].observer_timings
        assert envelope.dispatch_intent.issued_at <= timings.started_at <= timings.completed_at
        assert int(timings.completed_at[17:19]) - int(timings.started_at[17:19]) in (0, 1, -59)
    drafts = [record.body["timeline"]["marks"] for record in records(context, RecordKind.OUTCOME)]  # type: ignore[call-overload,index]
    assert all(marks["lastByteNs"] < 10**9 for marks in drafts)


def test_a_wall_clock_that_is_set_back_takes_no_trace_out_of_its_window_and_no_end_from_it() -> None:
    server, clock = MemoryServer(), SteppedClock(0)
    context = memory_run(server, setup=window(starts_ms=-1_000, ends_ms=2_000, plan=ONE_AT_A_TIME), clock=clock)
    connects = itertools.count()

    def before_the_second(name: str) -> None:
        if name == "net-connect" and next(connects) == 1:
            clock.__init__(-1_800_000)  # type: ignore[misc]  # somebody sets the clock

    server.__init__(before_the_second)  # type: ignore[misc]  # the same server
    assert run(context).states == {"success": 6}
    start = context.declaration.event_time_start_inclusive
    assert all(start <= envelope.attempts[0].observer_timings.started_at for envelope in envelopes(context))
    end_ms = timestamp_ms(context.declaration.event_time_end_exclusive)
    left_ns = (end_ms - context.wall_ms()) * 1_000_000
    assert 0 < left_ns < 2_000_000_000, "the window ends when it was said to end"


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_refused_endpoint_stops_its_lane_and_leaves_the_other_alone() -> None:
    server = MemoryServer(refuse=8002)
    setup = window(
        cases=[str(n) for n in range(8)], plan={**ONE_AT_A_TIME, "overload_stop_after": 3, "maximum_attempts": 1}
    )
    context = memory_run(server, setup=setup)
    result = run(context)
    assert result.states == {"success": 8, "not_sent": 3, "not_attempted": 5}
    assert result.reasons == {"connect-failed": 3, "overloaded": 5}


def test_a_stopped_lane_ends_the_retries_too() -> None:
    server = MemoryServer(refuse=8002)
    context = memory_run(server, setup=window(plan={**ONE_AT_A_TIME, "overload_stop_after": 1, "maximum_attempts": 8}))
    result = run(context)
    assert result.states == {"success": 3, "not_sent": 1, "not_attempted": 2}
    assert server.connects == 3 + 1, "one refused connect is enough for that lane"
    assert sorted((fault.state, fault.reason.value, fault.attempts) for fault in faults(context)) == [
        ("not_attempted", "overloaded", 0),
        ("not_attempted", "overloaded", 0),
        ("not_sent", "connect-failed", 1),
    ]


def test_an_execution_of_an_earlier_run_whose_lane_stops_keeps_its_attempts_and_says_overloaded() -> None:
    """Three pairs begin and fail to connect; the run stops in their pauses; in the next run one refusal stops the lane."""
    server, stop = MemoryServer(refuse=8002), StopSignal()
    plan = {
        "load_model": {"kind": "closed", "concurrency": 3},
        "pair_isolation": "overlap",
        "maximum_attempts": 3,
        "overload_stop_after": 4,
    }
    context = memory_run(server, setup=window(plan=plan))
    append, failed = Journal.append, 0

    async def stop_after_three(journal: Journal, kind: RecordKind, *arguments: Any, **options: Any) -> int:
        nonlocal failed
        failed += kind is RecordKind.OUTCOME
        if failed == 3:
            stop.request("sigterm")
        return await append(journal, kind, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "append", stop_after_three)
        first = run(context, stop=stop)
    assert first.status == "stopped" and first.states["pending"] >= 3
    tried = {record.trace_id for record in records(context, RecordKind.OUTCOME) if _not_sent(record)}
    assert len(tried) == 3
    strict = dataclasses.replace(context, network=MemoryServer(refuse=8002))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasc_collector.shadow.runner.Lane", lambda width, _: Lane(1, 1))
        result = run(strict)
    assert (result.status, result.states) == ("complete", {"success": 3, "not_sent": 3})
    found = {fault.trace_id: (fault.reason.value, fault.attempts) for fault in faults(strict)}
    assert set(found) == tried, "each keeps the trace of its intent"
    assert sorted(found.values()) == [("connect-failed", 2), ("overloaded", 1), ("overloaded", 1)]


def _not_sent(record: Any) -> bool:
    return record.body["attempt"]["dispatchState"] == "not_sent"  # type: ignore[no-any-return]  # a bool


def test_a_connect_that_fails_is_tried_again_up_to_the_plans_attempts() -> None:
    server = MemoryServer(refuse=True)
    context = memory_run(
        server, setup=window(cases=["one"], plan={**ONE_AT_A_TIME, "maximum_attempts": 3, "overload_stop_after": 100})
    )
    assert run(context).states == {"not_sent": 2}
    assert server.connects == 6 and {fault.attempts for fault in faults(context)} == {3}
    assert envelopes(context) == [], "a never-sent execution has no envelope"


def test_a_full_journal_sends_nothing_and_ends_the_run() -> None:
    disk, server = MemoryDisk(), MemoryServer()
    disk.free_bytes = 70_000
    context = memory_run(server, disk, setup=window(cases=[str(n) for n in range(20)]))
    with pytest.raises(JournalFull, match="space"):
        run(context)
    assert 0 < sum(server.sent.values()) < 40
    assert len(envelopes(context)) == sum(server.sent.values()), "the space of what was sent had been set aside"


def test_a_resume_sets_space_aside_anew_for_each_call_that_it_makes() -> None:
    """What an earlier run had set aside and not used is no debt: a disk with room for the rest finishes the window."""
    disk, server = MemoryDisk(), MemoryServer()
    setup = window(cases=[str(n) for n in range(6)], plan=ONE_AT_A_TIME)
    context = memory_run(server, disk, setup=setup, grow_bytes=8_192)
    assert run(context, stop=stopping_after(server, 3)).states == {"success": 3, "pending": 9}
    server.on_request = lambda: None
    used = sum(len(inode.seen) for path, inode in disk.names.items() if path.name.startswith("segment"))
    disk.free_bytes = 9 * used // 3
    reserved: list[int] = []
    reserve = Journal.reserve

    def noted(journal: Journal, size: int) -> Any:
        reserved.append(size)
        return reserve(journal, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "reserve", noted)
        assert run(context).states == {"success": 12}
    assert len(reserved) == 9, "one reservation for each call, none for what was there"
    assert len(set(server.sent.values())) == 1


def test_a_failed_journal_ends_the_run_with_its_own_error() -> None:
    process = Process(Machine(), Fault(5, errno.EIO, frozenset({"fdatasync"})))
    context = dataclasses.replace(memory_run(), fs=process.fs)
    with pytest.raises(JournalFailed, match="EIO"):
        run(context)


def test_a_case_whose_signal_the_envelope_would_refuse_is_found_before_anything_is_sent() -> None:
    server = MemoryServer()
    context = memory_run(server)
    definition = RouteSignalDefinition(
        definition_id="margin",
        version="1",
        minimum=0.0,
        maximum=1.0,
        direction="higher-is-more-confident",
        calibration_digest="sha256:" + "a" * 64,
    )
    terms = dataclasses.replace(context.terms, route_signal=definition)
    future = {"value": 0.5, "sourceId": "source-1", "observedAt": "2999-01-01T00:00:00.000Z"}
    cases = tuple(dataclasses.replace(case, route_signal=future) for case in context.cases)
    with pytest.raises(InputError, match="route signal"):
        preflight._check_signals(dataclasses.replace(context, terms=terms, cases=cases))
    assert server.sent == {}


def test_a_part_that_is_not_the_plans_is_refused_before_anything_is_opened() -> None:
    server = MemoryServer()
    context = memory_run(server)
    other = memory_run(server, setup=Setup({"a": "http://127.0.0.1:9001", "b": "http://127.0.0.1:8002"}))
    with pytest.raises(DigestMismatch, match=r"targets\.a"):
        run(dataclasses.replace(context, calls=other.calls))
    with pytest.raises(DigestMismatch, match="targets"):
        run(dataclasses.replace(context, calls={"a": context.calls["a"]}))
    assert server.connects == 0


# --- load -----------------------------------------------------------------------------------------------------------


def test_an_open_load_follows_the_plans_trace_and_no_other() -> None:
    arrivals = (0.0, 0.002, 0.004)
    load = {"kind": "open", "arrival": "trace", "trace_digest": arrivals_digest(arrivals), "maximum_concurrency": 8}
    server = MemoryServer()
    context = memory_run(server, setup=window(plan={"load_model": load}))
    with pytest.raises(DigestMismatch, match="trace of arrivals"):
        run(context)
    short = {**load, "trace_digest": arrivals_digest(arrivals[:2])}
    with pytest.raises(InputError, match="2 arrivals for 3 pairs"):
        run(memory_run(server, setup=window(plan={"load_model": short}), arrivals=arrivals[:2]))
    assert server.connects == 0
    assert run(dataclasses.replace(context, arrivals=arrivals)).states == {"success": 6}


def test_a_resumed_open_load_sends_what_is_left_without_waiting_for_what_is_done() -> None:
    arrivals, server = (0.0, 0.001, 1_000.0), MemoryServer()
    load = {"kind": "open", "arrival": "trace", "trace_digest": arrivals_digest(arrivals), "maximum_concurrency": 8}
    context = memory_run(server, setup=window(plan={"load_model": load}), arrivals=arrivals)
    part = dataclasses.replace(context, cases=context.cases[:2])
    assert run(part).states == {"success": 4, "pending": 2}
    assert run(context).states == {"success": 6} and set(server.sent.values()) == {1}


def test_a_cancelled_open_load_writes_the_answers_that_it_had_asked_for() -> None:
    """The run waits for an arrival in a minute, and calls are in flight."""
    arrivals = (0.0, 0.0, 60.0)
    load = {"kind": "open", "arrival": "trace", "trace_digest": arrivals_digest(arrivals), "maximum_concurrency": 8}
    server = MemoryServer()
    context = memory_run(server, setup=window(plan={"load_model": load}), arrivals=arrivals)

    async def cancelled() -> None:
        task = asyncio.create_task(run_window(context, StopSignal(), show=lambda _: None))
        server.on_request = lambda: task.cancel() if sum(server.sent.values()) == 1 else None  # before the answer
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    sent = sum(server.sent.values())
    assert 0 < sent < 6
    assert [envelope.attempts[-1].dispatch_state for envelope in envelopes(context)] == ["completed"] * sent
    assert run(context, send=False).states == {"success": sent, "pending": 6 - sent}


def test_a_warm_up_call_is_made_once_in_a_windows_life() -> None:
    server = MemoryServer()
    context = memory_run(server, setup=window(plan={**ONE_AT_A_TIME, "warm_up_calls_per_profile": 1}))
    assert run(context, stop=stopping_after(server, 2)).states == {"pending": 6}
    server.on_request = lambda: None
    assert run(context).states == {"success": 6}
    assert Counter(server.sent.values()) == {1: 8}


def test_on_the_main_thread_the_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert run_blocking(memory_run(), show=lambda _: None).status == "complete"
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
