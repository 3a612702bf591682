"""The real llama-server of build b10156, launched as the demo does."""

from __future__ import annotations

import dataclasses

import pytest

from tasc_compute import health
from tasc_compute.contracts import CanonicalMetric, ExitedEarly, InstanceState
from tasc_compute.engines import ENGINES
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.lifecycle import launch, stop, supervise
from tasc_compute.local import local_order
from tasc_compute.recipes import Recipe
from tests.support.live_engines import failed_launch, leader, living, llama_recipe, needs_llama

pytestmark = [pytest.mark.live, needs_llama]


def one_slot() -> Recipe:
    return llama_recipe()


def test_the_two_demo_engines_run_side_by_side_with_the_context_they_promise(compute, home):
    records = []
    for name in ("champion", "candidate"):
        records.append(launch(local_order(llama_recipe(name), home), compute))
    assert [record.port for record in records] == [18111, 18112]
    # 1024 for each request, whether one slot has it alone or four share a unified cache
    assert [health.context_per_request(record.port) for record in records] == [1024, 1024]
    assert [change.after for change in supervise(compute).changes] == [InstanceState.READY, InstanceState.READY]
    groups = [leader(record) for record in records]
    assert [stop(record.name, compute) for record in records] == [StopOutcome.STOPPED, StopOutcome.STOPPED]
    assert [living(group) for group in groups] == [[], []]
    assert compute.store.names() == ()


def test_context_is_a_promise_to_each_request_without_a_unified_cache(compute, home):
    recipe = dataclasses.replace(
        one_slot(), knobs=dataclasses.replace(one_slot().knobs, max_context_length=512, max_concurrent_requests=2)
    )
    record = launch(local_order(recipe, home), compute)
    assert health.context_per_request(record.port) == 512


def test_every_metric_of_the_map_is_served(compute, home):
    record = launch(local_order(one_slot(), home), compute)
    answer = health.ask(record.port, "/metrics", 3_000)
    assert answer is not None
    metrics = ENGINES[record.engine].metrics
    assert CanonicalMetric.KV_CACHE_UTILIZATION not in metrics  # this build has no such gauge
    served = {line.split(" ")[0] for line in answer.body.decode().splitlines() if not line.startswith("#")}
    assert {names[0] for names in metrics.values()} <= served


def test_a_bad_model_is_failed_launch_with_the_servers_words(compute, home):
    bad = home / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(64))
    order = local_order(dataclasses.replace(one_slot(), model=str(bad)), home)
    failure = failed_launch(order, compute, "failed to load model")
    assert "failed to load model" in failure.log_tail
    assert isinstance(failure, ExitedEarly)
    assert (failure.exit_code, failure.signal) == (1, None)
    assert compute.store.names() == ()
