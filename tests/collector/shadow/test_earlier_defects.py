"""Defects that were seen in an earlier project of this kind, each as a test that they are not here."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from pathlib import Path

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.journal import RecordKind
from tasc_collector.shadow.runner import run_window
from tasc_collector.shadow.scheduler import StopSignal
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import HOUR_MS, Setup, SteppedClock, run_context
from tests.support.runs import ORIGINS, envelopes, faults, memory_run, records, run

MODEL = "org/model"
MS = 1_000_000


def test_a_streamed_answer_whose_first_token_comes_long_after_its_head_is_kept_with_its_times(tmp_path: Path) -> None:
    """Stream times that began at the head were added to the start of the request: good answers were lost, TTFT was short."""
    slow = Behaviour(tokens=4, ttft_ms=150, itl_ms=1, model=MODEL)
    with ContractServer("vllm", behaviour=slow) as first, ContractServer("vllm", behaviour=slow) as second:
        context = run_context(Setup({"a": first.origin, "b": second.origin}, cases=["one"]), tmp_path / "run")
        assert run(context).states == {"success": 2}
        for record in records(context, RecordKind.OUTCOME):
            marks = record.body["timeline"]["marks"]  # type: ignore[call-overload,index]  # an object
            ttft_ns = marks["firstTokenNs"] - marks["requestStartedNs"]
            assert 150 * MS <= ttft_ns < 400 * MS
            assert (
                marks["requestStartedNs"]
                <= marks["headersNs"]
                <= marks["firstByteNs"]
                <= marks["firstTokenNs"]
                <= marks["lastByteNs"]
            )


def test_a_slow_profile_never_delays_the_clock_of_a_fast_one(tmp_path: Path) -> None:
    """Waiting for a turn was counted as the model's latency, so the fast profile was recorded as slow."""
    with (
        ContractServer("vllm", behaviour=Behaviour(tokens=2, ttft_ms=1_500, model=MODEL)) as slow,
        ContractServer("vllm", behaviour=Behaviour(tokens=2, ttft_ms=2, model=MODEL)) as fast,
    ):
        setup = Setup(
            {"a": slow.origin, "b": fast.origin},
            cases=["one", "two", "three", "four"],
            plan={"load_model": {"kind": "closed", "concurrency": 4}},
        )
        context = run_context(setup, tmp_path / "run")
        assert run(context).states == {"success": 8}
        profiles = {record.trace_id: record.body["profileId"] for record in records(context, RecordKind.INTENT)}
        for record in records(context, RecordKind.OUTCOME):
            marks = record.body["timeline"]["marks"]  # type: ignore[call-overload,index]  # an object
            service_ns = marks["lastByteNs"] - marks["requestStartedNs"]
            assert (service_ns >= 1_500 * MS) is (profiles[record.trace_id] == "a"), "only the slow one is slow"
            assert marks["begunNs"] < 1_400 * MS, "queue time is its own, and nobody queues behind the other profile"


@pytest.mark.parametrize("when", ["refused", "cancelled"])
def test_what_was_never_sent_is_no_trace_of_the_model(when: str) -> None:
    """Local failures and cancellations before the send became accepted traces with score 0."""
    server = MemoryServer(refuse=when == "refused")
    context = memory_run(server, setup=Setup(ORIGINS, plan={"overload_stop_after": 100}))
    if when == "refused":
        assert run(context).states == {"not_sent": 6}
        assert {(fault.state, fault.reason.value) for fault in faults(context)} == {("not_sent", "connect-failed")}
    else:
        entered = asyncio.Event()

        async def never_connects(*_: object) -> socket.socket:
            entered.set()
            await asyncio.Event().wait()
            raise AssertionError

        async def cancelled_at_the_first_connect() -> None:
            server.connect = never_connects  # type: ignore[method-assign]  # a peer that drops every packet
            task = asyncio.create_task(run_window(context, StopSignal(), show=lambda _: None))
            await entered.wait()
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await task

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(cancelled_at_the_first_connect())
        assert len(records(context, RecordKind.INTENT)) > 0
    assert envelopes(context) == []
    assert server.sent == {}


def test_a_window_can_be_finished_near_its_end_and_read_long_after_it() -> None:
    """A resume wanted the whole worst case to fit into what was left, and the present to lie in the window."""
    server, stop = MemoryServer(), StopSignal()
    server.on_request = lambda: stop.request("sigterm")
    context = memory_run(server, setup=Setup(ORIGINS, plan={"load_model": {"kind": "closed", "concurrency": 1}}))
    assert run(context, stop=stop).states == {"success": 1, "pending": 5}
    near = dataclasses.replace(context, clock=SteppedClock(HOUR_MS - 3_000), cases=context.cases[:1])
    assert near.plan.budget.max_wall_clock_ms > 3_000, "less is left than the worst case"
    assert run(near).states == {"success": 2, "pending": 4}
    after = dataclasses.replace(context, clock=SteppedClock(2 * HOUR_MS))
    assert run(after).states == {"success": 2, "not_attempted": 4}
    years_later = dataclasses.replace(context, clock=SteppedClock(20_000 * HOUR_MS), cases=())
    assert run(years_later).states == {"success": 2, "not_attempted": 4}
    assert sum(server.sent.values()) == 2


def test_an_old_window_whose_leases_are_open_is_settled_without_any_case() -> None:
    server = MemoryServer(silent=True)
    context = memory_run(server, setup=Setup(ORIGINS, plan={"load_model": {"kind": "closed", "concurrency": 1}}))

    async def killed() -> None:
        task = asyncio.create_task(run_window(context, StopSignal(), show=lambda _: None))
        sent = asyncio.Event()
        server.on_request = sent.set
        await sent.wait()
        context.fs.disk.end_process()  # type: ignore[attr-defined]  # a memory disk
        copied.update({path: bytes(inode.seen) for path, inode in context.fs.disk.names.items()})  # type: ignore[attr-defined]
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await task

    copied: dict[Path, bytes] = {}
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(killed())
    later = memory_run(MemoryServer(), clock=SteppedClock(5 * HOUR_MS))
    as_it_was = dataclasses.replace(
        context, fs=later.fs, clock=SteppedClock(5 * HOUR_MS), cases=(), network=MemoryServer()
    )
    disk = later.fs.disk  # type: ignore[attr-defined]  # a memory disk
    disk.folders.add(context.folder)
    for path, content in copied.items():
        descriptor = as_it_was.fs.create(path)
        as_it_was.fs.pwrite(descriptor, content, 0)
        as_it_was.fs.close(descriptor)
    result = run(as_it_was, send=False)
    assert result.states == {"sent_unknown": 1, "not_attempted": 5}


def test_more_cases_of_the_same_plan_leave_old_records_readable() -> None:
    """A MAC over the whole job list made every old record unreadable when one case was added."""
    server = MemoryServer()
    context = memory_run(server, setup=Setup(ORIGINS, cases=["one", "two", "three"]))
    assert run(dataclasses.replace(context, cases=context.cases[:2])).states == {"success": 4, "pending": 2}
    before = [record.body_bytes for record in records(context)]
    assert run(context).states == {"success": 6}
    assert [record.body_bytes for record in records(context)][: len(before)] == before
    assert set(server.sent.values()) == {1}
