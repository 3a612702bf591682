"""The tables: complete, pinned, in agreement with the matrix; rows P01 to P11 of the list of wire cases."""

from __future__ import annotations

import pytest

from tasc_collector.runtimes.profile import (
    CanonicalMetric,
    Capability,
    CapabilityState,
    Effect,
    Expectation,
    Framing,
    Locality,
    MetricFormat,
    ObservationKind,
    Reduce,
    Route,
    Tier,
)
from tasc_collector.runtimes.registry import get_profile, profiles

each = pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.runtime)
STATES = {
    "S": CapabilityState.SUPPORTED,
    "C": CapabilityState.CONDITIONAL,
    "U": CapabilityState.UNSUPPORTED,
    "?": CapabilityState.UNKNOWN,
}
RUNTIMES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "ollama", "tgi", "lm-studio", "mlx-lm")
MATRIX = {
    "chatCompletions": "CCCCCCCC",
    "completions": "SSSSC??C",
    "responses": "CCCCCUC?",
    "nativeChat": "????S?C?",
    "nativeGenerate": "????SS??",
    "streaming": "SSSSSSSS",
    "finalUsage": "CCCCSSSC",
    "logprobs": "CCCCCC?C",
    "structuredOutput": "CCCCCCCU",
    "tools": "CCCCCCCC",
    "cancellation": "SCCSSS?S",
    "modelDiscovery": "SSSSSSSS",
    "liveness": "SCSSCS?S",
    "readiness": "?CC?????",
    "prometheusMetrics": "SCCCUS?U",
    "jsonMetrics": "UUCUUU?U",
    "seedDeterminism": "CCCCCCCC",
}
BUILDS = {
    "vllm": "0.26.0",
    "sglang": "0.5.16",
    "tensorrt-llm": "1.2.1",
    "llama.cpp": "b10156",
    "ollama": "0.32.5",
    "tgi": "3.3.7",
    "lm-studio": "0.4.1",
    "mlx-lm": "0.31.3",
}


def route_of(runtime, path):
    profile = get_profile(runtime, BUILDS[runtime])
    return [route for route in profile.observations if route.path == path]


def test_the_eight_pins_in_order():
    assert {profile.runtime: profile.build for profile in profiles()} == BUILDS
    assert [profile.runtime for profile in profiles()] == sorted(BUILDS)


@pytest.mark.parametrize("capability", Capability)
def test_states_are_those_of_the_matrix(capability):
    states = [get_profile(runtime, BUILDS[runtime]).state(capability) for runtime in RUNTIMES]
    assert states == [STATES[letter] for letter in MATRIX[capability]]


@each
def test_every_claim_has_a_reason_and_a_pinned_reference(profile):
    assert set(profile.capabilities) == set(Capability)
    for capability, claim in profile.capabilities.items():
        assert claim.reason.endswith("."), capability
        assert claim.reference.url.startswith("https://"), capability
        pin = "c244e90" if profile.runtime == "lm-studio" else profile.build
        assert pin in claim.reference.url, capability
        if claim.state is CapabilityState.CONDITIONAL and capability is not Capability.LIVENESS:
            assert claim.depends_on, capability
        else:
            assert claim.state is CapabilityState.CONDITIONAL or not claim.depends_on, capability
    assert profile.references


@each
def test_routes_and_capabilities_agree(profile):
    admitted = (CapabilityState.SUPPORTED, CapabilityState.CONDITIONAL)
    assert {route.capability for route in profile.routes} == {
        Route(name).capability for name in Route if profile.state(Capability(name)) in admitted
    }
    for route, invocation in profile.routes.items():
        assert invocation.route is route
        assert invocation.effect is Effect.INFERENCE_CANARY
        assert Framing.JSON in invocation.paths
        assert len(invocation.framings) == 2
        assert all(path.startswith("/") and "?" not in path for path in invocation.paths.values())
    for kind, capability in (
        (ObservationKind.MODELS, Capability.MODEL_DISCOVERY),
        (ObservationKind.LIVENESS, Capability.LIVENESS),
        (ObservationKind.READINESS, Capability.READINESS),
        (ObservationKind.PROMETHEUS, Capability.PROMETHEUS_METRICS),
        (ObservationKind.JSON_METRICS, Capability.JSON_METRICS),
    ):
        assert (profile.observation(kind) is not None) is (profile.state(capability) in admitted), kind


@each
def test_json_observations_have_an_allowlist(profile):
    bodiless = {Expectation.EMPTY_BODY, Expectation.EXACT_TEXT, Expectation.PROMETHEUS_TEXT, Expectation.STATUS_OK}
    for route in profile.observations:
        assert bool(route.fields) is (route.expects not in bodiless), route.path
        assert (route.text is not None) is (route.expects is Expectation.EXACT_TEXT)
        assert route.method == "GET"


def test_tiers_and_localities_are_those_of_the_matrix():
    assert {p.runtime for p in profiles() if p.locality is Locality.LOCAL_ONLY} == {"ollama", "lm-studio", "mlx-lm"}
    tiers = {p.runtime: p.tier for p in profiles()}
    assert (tiers["tgi"], tiers["lm-studio"], tiers["mlx-lm"]) == (
        Tier.LEGACY,
        Tier.APPROVED_INTERNAL,
        Tier.EXPERIMENTAL,
    )
    others = set(BUILDS) - {"tgi", "lm-studio", "mlx-lm"}
    assert {tiers[name] for name in others} == {Tier.PRODUCTION_CANDIDATE}


def test_p01_sglang_health_is_a_canary():
    for path in ("/health", "/health_generate"):
        assert [route.effect for route in route_of("sglang", path)] == [Effect.INFERENCE_CANARY]


def test_p02_tgi_health_may_escalate_to_a_canary():
    (health,) = route_of("tgi", "/health")
    assert (health.effect, health.required_effect) == (Effect.NON_MUTATING, Effect.INFERENCE_CANARY)


def test_p03_tensorrt_metrics_are_consumptive_and_may_be_empty():
    (metrics,) = route_of("tensorrt-llm", "/metrics")
    assert (metrics.effect, metrics.kind) == (Effect.CONSUMPTIVE, ObservationKind.JSON_METRICS)
    assert "empty list is no error" in metrics.note


def test_p04_llama_metrics_need_their_option_and_health_says_loading():
    (metrics,) = route_of("llama.cpp", "/metrics")
    assert (metrics.requirement, "501" in metrics.note) == ("--metrics", True)
    assert "503" in route_of("llama.cpp", "/health")[0].note


def test_p05_a_dynamo_health_route_is_not_registered():
    assert "dynamo" not in {profile.runtime for profile in profiles()}


def test_p06_vllm_health_is_no_readiness():
    assert get_profile("vllm", "0.26.0").state(Capability.READINESS) is CapabilityState.UNKNOWN
    assert "hangs" in route_of("vllm", "/health")[0].note


def test_p07_gauges_are_added_and_utilization_never():
    for profile in profiles():
        for metric, source in profile.metrics.items():
            if metric is CanonicalMetric.KV_CACHE_UTILIZATION:
                assert source.reduce in (Reduce.MAX, Reduce.RATIO)
            if metric is CanonicalMetric.REQUESTS_RUNNING:
                assert source.reduce is Reduce.SUM


def test_p08_prometheus_routes_are_text():
    found = {p.runtime: p.observation(ObservationKind.PROMETHEUS) for p in profiles()}
    there = {runtime: route.expects for runtime, route in found.items() if route is not None}
    assert there == dict.fromkeys((*RUNTIMES[:4], "tgi"), Expectation.PROMETHEUS_TEXT)


def test_p09_a_metric_that_does_not_exist_has_no_source():
    for runtime in ("llama.cpp", "tgi"):
        assert CanonicalMetric.KV_CACHE_UTILIZATION not in get_profile(runtime, BUILDS[runtime]).metrics
    for runtime in ("ollama", "lm-studio", "mlx-lm"):
        assert get_profile(runtime, BUILDS[runtime]).metrics == {}
    trt = get_profile("tensorrt-llm", "1.2.1").metrics
    assert CanonicalMetric.PROMPT_TOKENS_TOTAL not in trt
    assert trt[CanonicalMetric.REQUESTS_RUNNING].format is MetricFormat.JSON
    used = trt[CanonicalMetric.KV_CACHE_UTILIZATION].names
    assert used == ("kvCacheStats.usedNumBlocks", "kvCacheStats.maxNumBlocks")


def test_p10_no_read_that_mutates_is_in_any_table():
    paths = {route.path for profile in profiles() for route in profile.observations}
    assert not paths & {"/flush_cache", "/reset", "/load_model", "/api/show", "/slots", "/start_profile", "/load"}


def test_p11_a_model_list_is_never_liveness():
    for profile in profiles():
        liveness = profile.observation(ObservationKind.LIVENESS)
        models = profile.observation(ObservationKind.MODELS)
        assert models is not None
        assert liveness is None or liveness.path != models.path
    assert get_profile("lm-studio", "0.4.1").observation(ObservationKind.LIVENESS) is None


def test_metric_names_are_those_of_the_pins():
    running = {p.runtime: p.metrics[CanonicalMetric.REQUESTS_RUNNING].names for p in profiles() if p.metrics}
    assert running == {
        "vllm": ("vllm:num_requests_running",),
        "sglang": ("sglang:num_running_reqs",),
        "tensorrt-llm": ("numActiveRequests",),
        "llama.cpp": ("llamacpp:requests_processing",),
        "tgi": ("tgi_batch_current_size",),
    }
