"""The real mlx_lm.server 0.31.3 as an engine: its constant health answer must not read as ready."""

from __future__ import annotations

import pytest

from tasc_compute import health
from tasc_compute.contracts import EngineId, InstanceState, UnhealthyTimeout
from tasc_compute.engines import ENGINES
from tasc_compute.errors import LaunchFailed
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.lifecycle import launch, stop, supervise
from tasc_compute.local import local_order
from tests.support.live_engines import leader, living, mlx_recipe, needs_mlx

pytestmark = [pytest.mark.live, needs_mlx]


def test_a_server_whose_model_cannot_be_loaded_is_never_ready_though_it_says_ok(compute, home):
    """Lesson 41: its health answer is a constant."""
    (home / "empty").mkdir()
    with pytest.raises(LaunchFailed) as caught:
        launch(local_order(mlx_recipe(home / "empty", home, deadline_s=30), home), compute)
    failure = caught.value.failure
    assert isinstance(failure, UnhealthyTimeout)
    # it had loaded nothing and said that it was well
    assert f"No such file or directory: '{home}/empty/config.json'" in failure.log_tail
    assert '"GET /health HTTP/1.1" 200' in failure.log_tail
    assert compute.store.names() == ()


def test_a_good_model_is_ready_after_one_token_and_leaves_nothing(compute, home, mlx_model):
    record = launch(local_order(mlx_recipe(mlx_model, home), home), compute)
    assert compute.store.latched(record)
    assert ENGINES[EngineId.MLX].metrics == {}
    answer = health.ask(record.port, "/metrics", 3_000)
    assert answer is None or answer.status != 200
    assert supervise(compute).observations["mlx"].state is InstanceState.READY
    assert stop("mlx", compute) is StopOutcome.STOPPED
    assert living(leader(record)) == []
