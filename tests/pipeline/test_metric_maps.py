"""The engines' metric maps (the seed's contract) and the runtimes' own say the same where both say something."""

from __future__ import annotations

import pytest

from tasc_collector.runtimes.profile import CanonicalMetric, MetricFormat
from tasc_collector.runtimes.registry import profiles
from tasc_compute.contracts import EngineId
from tasc_compute.engines import ENGINES

RUNTIME_OF = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "mlx": "mlx-lm"}
SINCE_RENAMED = {"vllm:gpu_cache_usage_perc"}
"""Names that the seed still lists behind the pinned build's own, for older servers."""


@pytest.mark.parametrize("engine", RUNTIME_OF)
def test_an_engine_and_its_runtime_read_the_same_names(engine: str) -> None:
    runtime = next(item for item in profiles() if item.runtime == RUNTIME_OF[engine])
    ours = {
        CanonicalMetric(metric.value).value: set(source.names)
        for metric, source in runtime.metrics.items()
        if source.format is MetricFormat.PROMETHEUS
    }
    for metric, names in ENGINES[EngineId(engine)].metrics.items():
        assert set(names) - SINCE_RENAMED == ours[metric.value], metric
