from __future__ import annotations

import dataclasses

import pytest

from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.work_budget import WorkBudget
from tasc_collector.errors import InputError, NotAuthorized
from tasc_collector.shadow.budget import Work, check_budget, concurrency_of, worst_case
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import Setup
from tests.support.runs import ORIGINS, memory_run, run


def plan(**fields: object) -> CollectionPlan:
    return memory_run(setup=Setup(ORIGINS, plan=fields)).plan


CLOSED_3 = {"load_model": {"kind": "closed", "concurrency": 3}}
OPEN_5 = {"load_model": {"kind": "open", "arrival": "constant", "rate_per_second": 10.0, "maximum_concurrency": 5}}


def test_the_worst_case_by_hand() -> None:
    fields = {**CLOSED_3, "maximum_attempts": 2, "warm_up_calls_per_profile": 1, "attempt_timeout_ms": 1_000}
    work = worst_case(plan(**fields), cases=4, replicates=10, request_bytes=[100] * 20)
    limit = 2 * memory_run().plan.targets[0].http_limits.max_response_bytes
    assert work == Work(
        cases=4,
        profiles=2,
        replicates=10,
        logical_executions=20,
        attempts=40,
        network_calls=42,
        durable_records=2 + 60 + 2 + 84,
        request_bytes=100 * 20 * 2 + 2 * 4096,
        response_bytes=21 * limit,
        wall_clock_ms=14 * 1_000,
        concurrency=3,
    )


@pytest.mark.parametrize(
    ("fields", "concurrency"),
    [
        (CLOSED_3, 3),
        ({**CLOSED_3, "pair_isolation": "overlap"}, 6),
        (OPEN_5, 5),
        ({"load_model": {"kind": "closed", "concurrency": 100}}, 16),
    ],
)
def test_concurrency_is_the_pairs_times_what_a_pair_may_overlap_within_the_lanes(
    fields: dict[str, object], concurrency: int
) -> None:
    assert concurrency_of(plan(**fields)) == concurrency


@pytest.mark.parametrize("bound", list(WorkBudget.model_fields))
def test_each_bound_is_compared_and_named_with_what_is_missing(bound: str) -> None:
    work = Work(*[7] * len(dataclasses.fields(Work)))
    sizes = dict.fromkeys(WorkBudget.model_fields, 7)
    check_budget(_with(sizes), work)
    with pytest.raises(NotAuthorized, match="needs 7, the plan allows 4: 3 too many") as refused:
        check_budget(_with({**sizes, bound: 4}), work)
    assert refused.value.field == "budget." + "".join(
        part.title() if index else part for index, part in enumerate(bound.split("_"))
    )


def test_a_plan_whose_budget_is_too_small_sends_nothing() -> None:
    small = WorkBudget(**(dict.fromkeys(WorkBudget.model_fields, 10**9) | {"max_request_bytes": 10}))
    context = memory_run(setup=Setup(ORIGINS, plan={"budget": small}))
    with pytest.raises(NotAuthorized, match="the plan allows 10"):
        run(context)
    assert context.fs.disk.names == {}, "not even a file was made"  # type: ignore[attr-defined]  # a memory disk


def _with(sizes: dict[str, int]) -> CollectionPlan:
    base = memory_run().plan
    return base.model_copy(update={"budget": WorkBudget(**sizes)})


def test_a_case_whose_request_is_too_large_is_named_before_anything_is_sent() -> None:
    """It was found at its turn: the run ended there, and so did every run after it."""
    server = MemoryServer()
    setup = Setup(ORIGINS, cases=["one", "x" * 5_000, "three"], limits=HttpLimits(max_request_bytes=4_096))
    context = memory_run(server, setup=setup)
    with pytest.raises(InputError, match="too many") as refusal:
        run(context)
    assert refusal.value.where == "case-00002" and refusal.value.rule == "at most 4096 bytes"
    assert server.connects == 0
