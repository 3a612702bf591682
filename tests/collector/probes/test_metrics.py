"""Canonical metrics of an exposition, by the profile's own map; values written by hand."""

from __future__ import annotations

import pytest

from tasc_collector.errors import InputError, WireError
from tasc_collector.probes.metrics import METRIC_NAMES, NOTHING, read_iterations, read_prometheus
from tasc_collector.runtimes.profile import CanonicalMetric
from tests.support.probing import RUNTIMES, profile_of

VLLM = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 4
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="m"} 9
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 2.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 10
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1",model_name="m"} 1
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.5",model_name="m"} 1
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="m"} 2
vllm:time_to_first_token_seconds_sum{engine="1",model_name="m"} 1.5
# TYPE other gauge
other 1
odd NaN
"""


def test_requests_are_added_over_engines_and_a_utilization_is_not() -> None:
    reading = read_prometheus(profile_of("vllm"), VLLM)
    assert reading.value(CanonicalMetric.REQUESTS_RUNNING) == 5.0
    assert reading.value(CanonicalMetric.REQUESTS_WAITING) == 1.0
    assert reading.value(CanonicalMetric.KV_CACHE_UTILIZATION) == 0.75
    assert reading.value(CanonicalMetric.PROMPT_TOKENS_TOTAL) == 100.0


def test_what_is_not_there_is_null_and_never_zero() -> None:
    reading = read_prometheus(profile_of("vllm"), VLLM)
    assert reading.value(CanonicalMetric.GENERATION_TOKENS_TOTAL) is None
    assert reading.histogram(CanonicalMetric.ITL_SECONDS) is None


def test_several_series_are_kept_beside_their_one_number() -> None:
    reading = read_prometheus(profile_of("vllm"), VLLM)
    running = [(item.labels, item.value) for item in reading.values if item.metric == "requests-running"]
    assert running == [
        ((), 5.0),
        ((("engine", "0"), ("model_name", "m")), 3.0),
        ((("engine", "1"), ("model_name", "m")), 2.0),
    ]
    waiting = [item.labels for item in reading.values if item.metric == "requests-waiting"]
    assert waiting == [()]


def test_histograms_are_added_bucket_by_bucket() -> None:
    found = read_prometheus(profile_of("vllm"), VLLM).histogram(CanonicalMetric.TTFT_SECONDS)
    assert found is not None
    assert found.upper_bounds == (0.1, 0.5)
    assert found.cumulative_counts == (5, 10, 12)
    assert found.sum == 4.0


def test_samples_of_no_metric_and_non_finite_ones_are_counted() -> None:
    reading = read_prometheus(profile_of("vllm"), VLLM)
    assert (reading.ignored_samples, reading.non_finite_samples) == (1, 1)


def test_copies_that_differ_in_their_process_only_are_one_series() -> None:
    text = (
        b'vllm:num_requests_running{engine="0",pid="11"} 3\nvllm:num_requests_running{engine="0",pid="12"} 3\n'
        b'vllm:num_requests_running{engine="1",pid="11"} 4\n'
    )
    reading = read_prometheus(profile_of("vllm"), text)
    assert reading.value(CanonicalMetric.REQUESTS_RUNNING) == 7.0


def test_a_series_with_a_label_that_is_not_known_makes_its_metric_null() -> None:
    text = b'vllm:num_requests_running{tenant="a"} 3\nvllm:num_requests_waiting 1\n'
    reading = read_prometheus(profile_of("vllm"), text)
    assert reading.value(CanonicalMetric.REQUESTS_RUNNING) is None
    assert reading.value(CanonicalMetric.REQUESTS_WAITING) == 1.0


def test_histograms_with_different_bounds_are_not_added() -> None:
    text = (
        b"# TYPE vllm:time_to_first_token_seconds histogram\n"
        b'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 1\n'
        b'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 1\n'
        b'vllm:time_to_first_token_seconds_bucket{engine="1",le="0.2"} 1\n'
        b'vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 1\n'
    )
    assert read_prometheus(profile_of("vllm"), text).histograms == ()


def test_the_first_name_that_is_present_counts() -> None:
    both = b"sglang:token_usage 0.9\nsglang:full_token_usage 0.4\n"
    assert read_prometheus(profile_of("sglang"), both).value(CanonicalMetric.KV_CACHE_UTILIZATION) == 0.4
    one = b"sglang:token_usage 0.9\n"
    assert read_prometheus(profile_of("sglang"), one).value(CanonicalMetric.KV_CACHE_UTILIZATION) == 0.9


def test_a_label_that_is_a_path_is_not_kept() -> None:
    text = b"".join(b'sglang:num_running_reqs{dp_rank="%d",model_name="/srv/m"} 1\n' % rank for rank in range(2))
    reading = read_prometheus(profile_of("sglang"), text)
    assert [item.labels for item in reading.values if item.metric == "requests-running"] == [
        (), (("dp_rank", "0"),), (("dp_rank", "1"),),
    ]  # fmt: skip


def test_llama_cpp_has_no_cache_gauge() -> None:
    text = b"llamacpp:requests_processing 1\nllamacpp:kv_cache_usage_ratio 0.5\n"
    reading = read_prometheus(profile_of("llama.cpp"), text)
    assert reading.value(CanonicalMetric.REQUESTS_RUNNING) == 1.0
    assert reading.value(CanonicalMetric.KV_CACHE_UTILIZATION) is None


def test_iteration_records_give_the_newest_numbers_and_a_ratio() -> None:
    rows = [
        {"numActiveRequests": 1, "numQueuedRequests": 0},
        {"numActiveRequests": 4, "numQueuedRequests": 2, "kvCacheStats": {"usedNumBlocks": 30, "maxNumBlocks": 120}},
    ]
    reading = read_iterations(profile_of("tensorrt-llm"), rows)
    assert reading.value(CanonicalMetric.REQUESTS_RUNNING) == 4.0
    assert reading.value(CanonicalMetric.REQUESTS_WAITING) == 2.0
    assert reading.value(CanonicalMetric.KV_CACHE_UTILIZATION) == 0.25
    assert reading.value(CanonicalMetric.PROMPT_TOKENS_TOTAL) is None


def test_no_iteration_record_is_no_error_and_a_bad_one_is() -> None:
    assert read_iterations(profile_of("tensorrt-llm"), []).values == NOTHING.values
    for rows in ([1], [{"numActiveRequests": True}], [{"numActiveRequests": "4"}]):
        with pytest.raises(InputError):
            read_iterations(profile_of("tensorrt-llm"), rows)


def test_a_cache_of_no_blocks_has_no_utilization() -> None:
    rows = [{"kvCacheStats": {"usedNumBlocks": 0, "maxNumBlocks": 0}}]
    assert read_iterations(profile_of("tensorrt-llm"), rows).value(CanonicalMetric.KV_CACHE_UTILIZATION) is None


def test_broken_text_is_refused() -> None:
    with pytest.raises(WireError):
        read_prometheus(profile_of("vllm"), b"<html></html>")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_metric_of_a_profile_has_a_name_in_records(runtime: str) -> None:
    assert set(profile_of(runtime).metrics) <= set(METRIC_NAMES)
