"""Worst-case accounting of a plan, before a signature, a file or a socket.

Every bound of the plan's work budget and of the protocol is compared with the worst case of what was planned. The wall
clock is divided by the concurrency that the load model allows; the original multiplies attempts by the time-out only,
which forces needlessly long windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasc_collector.contracts.collection import CollectionPlan, OpenLoad
from tasc_collector.errors import NotAuthorized


@dataclass(frozen=True, slots=True)
class Work:
    """Worst case of one window."""

    cases: int
    profiles: int
    replicates: int
    logical_executions: int
    attempts: int
    network_calls: int
    durable_records: int
    request_bytes: int
    response_bytes: int
    wall_clock_ms: int
    concurrency: int


def concurrency_of(plan: CollectionPlan) -> int:
    """Most calls in flight at once: the load model's pairs, times the profiles where a pair may overlap, within the lanes."""
    load = plan.load_model
    pairs = load.maximum_concurrency if isinstance(load, OpenLoad) else load.concurrency
    per_pair = len(plan.targets) if plan.pair_isolation == "overlap" else 1
    return min(pairs * per_pair, sum(target.lane_width for target in plan.targets))


def worst_case(plan: CollectionPlan, *, cases: int, replicates: int, request_bytes: Sequence[int]) -> Work:
    """Worst case of a plan.

    Args:
        plan: the collection plan.
        cases: cases planned.
        replicates: case-replicates after sampling.
        request_bytes: body size of each logical execution, or an upper bound for all as one entry repeated.
    """
    profiles = len(plan.targets)
    executions = replicates * profiles
    warm_up = plan.warm_up_calls_per_profile * profiles
    attempts = executions * plan.maximum_attempts
    calls = attempts + warm_up
    concurrency = concurrency_of(plan)
    slowest_lane = max(
        math.ceil((replicates * plan.maximum_attempts + plan.warm_up_calls_per_profile) / target.lane_width)
        for target in plan.targets
    )
    serial_calls = max(math.ceil(calls / concurrency), slowest_lane)
    response_limit = sum(target.http_limits.max_response_bytes for target in plan.targets)
    warm_up_bytes = 4096 * warm_up
    return Work(
        cases=cases,
        profiles=profiles,
        replicates=replicates,
        logical_executions=executions,
        attempts=attempts,
        network_calls=calls,
        # admission and settlement, per execution intent, accepted, complete, per call lease and outcome
        durable_records=2 + 3 * executions + warm_up + 2 * calls,
        request_bytes=sum(request_bytes) * plan.maximum_attempts + warm_up_bytes,
        response_bytes=(replicates * plan.maximum_attempts + plan.warm_up_calls_per_profile) * response_limit,
        wall_clock_ms=serial_calls * plan.attempt_timeout_ms,
        concurrency=concurrency,
    )


def check_budget(plan: CollectionPlan, work: Work) -> None:
    """Refuse a plan whose worst case exceeds its own budget.

    Raises:
        NotAuthorized: names the bound, the worst case and by how much it is exceeded.
    """
    budget = plan.budget
    for name, needed, allowed in (
        ("maxCases", work.cases, budget.max_cases),
        ("maxProfiles", work.profiles, budget.max_profiles),
        ("maxReplicates", work.replicates, budget.max_replicates),
        ("maxLogicalExecutions", work.logical_executions, budget.max_logical_executions),
        ("maxAttempts", work.attempts, budget.max_attempts),
        ("maxNetworkCalls", work.network_calls, budget.max_network_calls),
        ("maxDurableRecords", work.durable_records, budget.max_durable_records),
        ("maxRequestBytes", work.request_bytes, budget.max_request_bytes),
        ("maxResponseBytes", work.response_bytes, budget.max_response_bytes),
        ("maxConcurrency", work.concurrency, budget.max_concurrency),
        ("maxWallClockMs", work.wall_clock_ms, budget.max_wall_clock_ms),
    ):
        if needed > allowed:
            raise NotAuthorized(
                f"the worst case needs {needed}, the plan allows {allowed}: {needed - allowed} too many",
                where="plan",
                field=f"budget.{name}",
                way_out="seal and plan a smaller window, or issue a plan with a larger budget",
            )
