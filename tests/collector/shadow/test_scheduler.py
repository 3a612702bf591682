from __future__ import annotations

import asyncio
import time

import pytest

from tasc_collector.contracts.collection import ClosedLoad, OpenLoad
from tasc_collector.shadow.cases import read_cases
from tasc_collector.shadow.executions import Pair, PlannedPair
from tasc_collector.shadow.scheduler import NANOSECOND, Lane, StopSignal, arrival_offsets, run_pairs


def pairs(count: int) -> list[Pair]:
    cases = read_cases([b"text %d" % number for number in range(count)], "text-lines", where="cases", replicates=1)
    return [
        Pair(
            PlannedPair(case.case_id, case.group_id, 0, f"replicate-{index}", ("a", "b") if index % 2 else ("b", "a")),
            case,
        )
        for index, case in enumerate(cases)
    ]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1
        return self.ns


def run(
    load: ClosedLoad | OpenLoad, isolation: str, count: int, run_one, stop: StopSignal | None = None, arrivals=None
) -> None:  # type: ignore[no-untyped-def]
    asyncio.run(
        run_pairs(pairs(count), load, isolation, run_one, now_ns=Clock(), stop=stop or StopSignal(), arrivals=arrivals)
    )  # type: ignore[arg-type]


def test_a_closed_load_keeps_at_most_its_number_of_pairs_in_flight() -> None:
    running, most, done = 0, 0, []

    async def run_one(pair: Pair, profile: str, queued: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1
        done.append((pair.case.case_id, profile))

    run(ClosedLoad(kind="closed", concurrency=3), "serial", 7, run_one)
    assert most == 3
    assert len(done) == 14 and len(set(done)) == 14


def test_serial_isolation_runs_a_pair_in_its_counterbalanced_order() -> None:
    seen: list[tuple[str, str]] = []

    async def run_one(pair: Pair, profile: str, queued: int) -> None:
        seen.append((pair.case.case_id, profile))
        await asyncio.sleep(0)

    run(ClosedLoad(kind="closed", concurrency=1), "serial", 2, run_one)
    assert seen == [("case-00001", "b"), ("case-00001", "a"), ("case-00002", "a"), ("case-00002", "b")]


def test_overlap_runs_both_of_a_pair_at_once() -> None:
    started: list[str] = []
    both = asyncio.Event()

    async def run_one(pair: Pair, profile: str, queued: int) -> None:
        started.append(profile)
        if len(started) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 5)

    run(ClosedLoad(kind="closed", concurrency=1), "overlap", 1, run_one)
    assert sorted(started) == ["a", "b"]


def test_after_a_stop_nothing_new_starts_and_what_runs_is_awaited() -> None:
    stop = StopSignal()
    started: list[str] = []
    ended: list[str] = []

    async def run_one(pair: Pair, profile: str, queued: int) -> None:
        started.append(profile)
        if len(started) == 2:
            stop.request("test")
        while not stop.requested:  # noqa: ASYNC110 - the stop signal has no event of its own
            await asyncio.sleep(0)
        ended.append(profile)

    run(ClosedLoad(kind="closed", concurrency=2), "serial", 6, run_one, stop)
    assert len(ended) == 2, "one call of each of the two pairs in flight, no second call"
    assert stop.reason == "test"


def test_an_exception_drains_the_others_and_is_raised() -> None:
    ended: list[str] = []

    async def run_one(pair: Pair, profile: str, queued: int) -> None:
        if pair.case.case_id == "case-00001":
            raise RuntimeError("broken")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended.append(profile)

    with pytest.raises(RuntimeError, match="broken"):
        run(ClosedLoad(kind="closed", concurrency=2), "overlap", 8, run_one)
    assert ended, "the pair beside it was awaited"
    assert len(ended) < 14, "no further pair was started"


def test_an_open_load_counts_waiting_from_the_scheduled_time() -> None:
    queued: list[int] = []

    async def run_one(pair: Pair, profile: str, queued_ns: int) -> None:
        if profile == pair.order[0]:
            queued.append(queued_ns)

    run(
        OpenLoad(kind="open", arrival="trace", trace_digest="sha256:" + "0" * 64, maximum_concurrency=1),
        "serial",
        3,
        run_one,
        arrivals=[0.0, 0.001, 0.002],
    )
    assert [later - queued[0] for later in queued] == [0, NANOSECOND // 1000, NANOSECOND // 500]


TRACE = OpenLoad(kind="open", arrival="trace", trace_digest="sha256:" + "0" * 64, maximum_concurrency=8)
HOUR_S = 3_600.0


def test_a_failure_ends_an_open_loads_wait_for_the_next_arrival_and_drains() -> None:
    """The second pair fails at once, the first one ends later, the third would start in an hour."""
    ended: list[str] = []

    async def run_one(pair: Pair, profile: str, queued_ns: int) -> None:
        if pair.case.case_id == "case-00002":
            raise RuntimeError("broken")
        await asyncio.sleep(0.01)
        ended.append(profile)

    async def check() -> None:
        running = run_pairs(pairs(3), TRACE, "serial", run_one, now_ns=Clock(), stop=stop, arrivals=[0.0, 0.0, HOUR_S])
        with pytest.raises(RuntimeError, match="broken"):
            await asyncio.wait_for(running, 20)

    stop = StopSignal()
    asyncio.run(check())
    assert ended == ["b"], "the call that was in flight, and none after the failure"
    assert stop.reason == "failed"


def test_a_resumed_open_load_waits_for_no_arrival_of_a_finished_pair() -> None:
    queued: dict[str, int] = {}
    first_of_the_rest = pairs(6)[3]

    async def run_one(pair: Pair, profile: str, queued_ns: int) -> None:
        queued[pair.case.case_id] = queued_ns
        await asyncio.sleep(0)

    asyncio.run(
        run_pairs(
            pairs(6),
            TRACE,
            "overlap",
            run_one,
            now_ns=time.monotonic_ns,
            stop=StopSignal(),
            arrivals=(0.0, 1_000.0, 2_000.0, 3_000.0, 3_000.01, 3_000.04),
            finished=lambda pair: pair.case.case_id < first_of_the_rest.case.case_id,
        )
    )
    first, second, third = (queued[name] for name in ("case-00004", "case-00005", "case-00006"))
    assert len(queued) == 3
    assert (second - first, third - first) == (10_000_000, 40_000_000), "the trace's own distances"


def test_an_open_load_waits_for_no_arrival_after_the_windows_end() -> None:
    started: list[str] = []

    async def run_one(pair: Pair, profile: str, queued_ns: int) -> None:
        started.append(pair.case.case_id)

    async def check() -> None:
        arrivals, soon = [0.0, 1e-6, HOUR_S], 100_000
        ran = run_pairs(
            pairs(3), TRACE, "serial", run_one, now_ns=Clock(), stop=StopSignal(), arrivals=arrivals, closes_ns=soon
        )
        await asyncio.wait_for(ran, 60)

    asyncio.run(check())
    assert sorted(set(started)) == ["case-00001", "case-00002"]


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancelled_open_load_waits_for_its_calls_and_at_the_second_time_hands_it_on(cancels: int) -> None:
    started, let_end, told = asyncio.Event(), asyncio.Event(), []

    async def run_one(pair: Pair, profile: str, queued_ns: int) -> None:
        started.set()
        try:
            await let_end.wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        told.append("ended")

    async def check() -> None:
        task = asyncio.create_task(
            run_pairs(pairs(2), TRACE, "serial", run_one, now_ns=Clock(), stop=stop, arrivals=[0.0, HOUR_S])
        )
        await started.wait()
        for _ in range(cancels):
            task.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
        assert task.done() is (cancels == 2)
        let_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    stop = StopSignal()
    asyncio.run(check())
    assert told == (["ended"] if cancels == 1 else ["cancelled"])
    assert stop.reason == "cancelled"


def test_constant_and_poisson_arrivals() -> None:
    constant = arrival_offsets(
        OpenLoad(kind="open", arrival="constant", rate_per_second=4.0, maximum_concurrency=1), None
    )
    assert [next(constant) for _ in range(3)] == [0.0, 0.25, 0.5]
    load = OpenLoad(kind="open", arrival="poisson", rate_per_second=100.0, seed="s", maximum_concurrency=1)
    first, again = arrival_offsets(load, None), arrival_offsets(load, None)
    drawn = [next(first) for _ in range(2000)]
    assert drawn == [next(again) for _ in range(2000)], "the same seed is the same schedule"
    assert drawn[-1] == pytest.approx(20.0, rel=0.1), "2000 arrivals at 100 per second take about 20 s"


def test_a_lane_stops_after_consecutive_refusals_only() -> None:
    async def check() -> None:
        lane = Lane(width=1, stop_after=3)
        for refused in (True, True, False, True, True):
            lane.saw(refused=refused)
        assert not lane.stopped
        lane.saw(refused=True)
        assert lane.stopped

    asyncio.run(check())
