"""One bounded inference per capability: every route of every profile, every feature, every fault, every refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.contract_servers.behaviour import FaultScope
from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.errors import DispatchState, InputError, NotAuthorized
from tasc_collector.probes.canaries import CANARIES, canary_framing, passive_reads
from tasc_collector.runtimes.profile import Capability, CapabilityState, Effect, Framing, Route
from tests.support.probing import FAST, RUNTIMES, place, profile_of, run_canary

INVOCATIONS = [
    (runtime, route, framing)
    for runtime in RUNTIMES
    for route, invocation in profile_of(runtime).routes.items()
    for framing in invocation.framings
    if profile_of(runtime).state(route.capability) is not CapabilityState.UNSUPPORTED
]


@pytest.mark.parametrize(("runtime", "route", "framing"), INVOCATIONS)
def test_every_route_and_framing_is_shown_by_one_call(runtime: str, route: Route, framing: Framing) -> None:
    with ContractServer(runtime, behaviour=FAST) as server:
        done = run_canary(place(server, route, framing), route.capability)
        assert (done.finding.state, done.finding.reason) == ("supported", "observed")
        assert (done.framing, done.calls) == (framing, 1)
        assert server.ledger.inference_calls == 1


@pytest.mark.parametrize(("runtime", "route", "framing"), INVOCATIONS)
def test_another_effect_sends_nothing(runtime: str, route: Route, framing: Framing) -> None:
    with ContractServer(runtime) as server:
        for effect in (Effect.NON_MUTATING, Effect.CONSUMPTIVE):
            with pytest.raises(NotAuthorized, match="--effect inference-canary"):
                run_canary(place(server, route, framing), route.capability, effect)
        assert server.ledger.connections == 0


@pytest.mark.parametrize(("runtime", "route", "framing"), INVOCATIONS)
def test_a_route_outside_the_policy_sends_nothing(runtime: str, route: Route, framing: Framing) -> None:
    path = profile_of(runtime).routes[route].paths[framing]
    with ContractServer(runtime) as server:
        with pytest.raises(NotAuthorized, match="no route of the endpoint covers"):
            run_canary(place(server, route, framing, leave_out=[path]), route.capability)
        assert server.ledger.connections == 0


FAULTS = {
    "not-found": ("unsupported", "route-absent"),
    "server-error": ("unknown", "unexpected-status"),
    "overloaded-429": ("unknown", "unexpected-status"),
    "html-content-type": ("unknown", "content-type-refused"),
    "error-200": ("unknown", None),
    "null-body": ("unknown", None),
    "close-before-status": ("unknown", "connection-closed"),
    "reset-before-status": ("unknown", "connection-reset"),
    "model-differs": ("unknown", "model-mismatch"),
    "healthy-without-workers": ("unsupported", "route-absent"),
}


@pytest.mark.parametrize("framing", [Framing.JSON, Framing.SSE])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_its_own_outcome_and_is_not_tried_again(fault: str, framing: Framing) -> None:
    behaviour = Behaviour(tokens=4, fault=fault, fault_scope=FaultScope.INFERENCE)
    with ContractServer("vllm", behaviour=behaviour) as server:
        done = run_canary(place(server, Route.CHAT_COMPLETIONS, framing), Capability.CHAT_COMPLETIONS)
        state, reason = FAULTS[fault]
        assert done.finding.state == state
        assert reason is None or done.finding.reason == reason
        assert done.finding.reason != "observed"
        assert server.ledger.inference_calls <= 1


EVERY_ROUTE = {
    "not-found": ("unsupported", "route-absent"),
    "not-implemented": ("unknown", "not-enabled"),
    "server-error": ("unknown", "unexpected-status"),
    "html-content-type": ("unknown", "content-type-refused"),
    "close-before-status": ("unknown", "connection-closed"),
    "stall-headers": ("unknown", "headers-timeout"),
}


@pytest.mark.parametrize(("runtime", "route", "framing"), INVOCATIONS)
def test_each_fault_of_each_route_and_framing_is_its_own_outcome(runtime: str, route: Route, framing: Framing) -> None:
    impatient = HttpLimits(connect_timeout_ms=1_000, headers_timeout_ms=200, body_timeout_ms=1_500, deadline_ms=3_000)
    with ContractServer(runtime) as server:
        seen = {}
        for fault in EVERY_ROUTE:
            server.behaviour = Behaviour(tokens=4, fault=fault, fault_scope=FaultScope.INFERENCE)
            where = place(server, route, framing)
            limits = impatient if fault == "stall-headers" else where.limits
            found = run_canary(replace(where, limits=limits), route.capability).finding
            seen[fault] = (found.state, found.reason)
        assert seen == EVERY_ROUTE
        server.behaviour = Behaviour(tokens=4, fault="error-200", fault_scope=FaultScope.INFERENCE)
        refused = run_canary(place(server, route, framing), route.capability).finding
        assert refused.state == "unknown" and refused.reason != "observed"
        assert server.ledger.inference_calls <= len(EVERY_ROUTE) + 1, "no canary is tried again"


def test_a_hung_server_ends_with_a_timeout_and_stays_unknown() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="stall-headers")) as server:
        done = run_canary(place(server), Capability.CHAT_COMPLETIONS)
        assert (done.finding.state, done.finding.reason) == ("unknown", "headers-timeout")
        assert done.finding.dispatch_state is DispatchState.SENT_UNKNOWN


def test_a_server_that_is_away_was_not_called() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="refused")) as server:
        done = run_canary(place(server), Capability.CHAT_COMPLETIONS)
        assert (done.finding.state, done.finding.reason) == ("unknown", "connect-refused")
        assert (done.calls, done.finding.dispatch_state) == (0, DispatchState.NOT_SENT)


FEATURES = (
    Capability.STREAMING, Capability.FINAL_USAGE, Capability.LOGPROBS, Capability.STRUCTURED_OUTPUT, Capability.TOOLS,
    Capability.SEED_DETERMINISM,
)  # fmt: skip


@pytest.mark.parametrize("capability", FEATURES)
@pytest.mark.parametrize("runtime", ["vllm", "sglang", "llama.cpp"])
def test_features_of_chat_are_shown(runtime: str, capability: Capability) -> None:
    with ContractServer(runtime, behaviour=FAST) as server:
        done = run_canary(place(server, Route.CHAT_COMPLETIONS), capability)
        assert (done.finding.state, done.finding.reason) == ("supported", "observed")
        assert server.ledger.inference_calls == done.calls == CANARIES[capability].calls


def test_one_call_shows_a_capability_and_a_seed_alone_takes_two() -> None:
    """What a seed promises is a repetition: nothing less than a second call shows it."""
    calls = {capability: canary.calls for capability, canary in CANARIES.items()}
    assert calls.pop(Capability.SEED_DETERMINISM) == 2
    assert set(calls.values()) == {1}
    assert CANARIES[Capability.SEED_DETERMINISM].most_tokens == 32


@pytest.mark.parametrize(("runtime", "route", "framing"), INVOCATIONS)
def test_a_canary_reads_no_more_than_it_says_beforehand(runtime: str, route: Route, framing: Framing) -> None:
    with ContractServer(runtime, behaviour=FAST) as server:
        run_canary(place(server, route, framing), route.capability)
        assert server.ledger.requests - server.ledger.inference_calls <= passive_reads(
            profile_of(runtime), route.capability
        )


@pytest.mark.parametrize(
    ("runtime", "reads"),
    [("vllm", 22), ("llama.cpp", 22), ("sglang", 21), ("ollama", 2), ("mlx-lm", 2), ("tensorrt-llm", 22)],
)
def test_cancellation_is_one_call_with_the_passive_reads_that_it_says_beforehand(runtime: str, reads: int) -> None:
    assert passive_reads(profile_of(runtime), Capability.CANCELLATION) == reads
    with ContractServer(runtime, behaviour=Behaviour(ttft_ms=5, itl_ms=20, tokens=400)) as server:
        done = run_canary(place(server), Capability.CANCELLATION)
        assert server.ledger.inference_calls == done.calls == 1
        assert server.ledger.requests - 1 <= reads


@pytest.mark.parametrize(
    ("runtime", "route", "capability"),
    [
        ("tgi", Route.NATIVE_GENERATE, Capability.LOGPROBS),
        ("tgi", Route.NATIVE_GENERATE, Capability.STRUCTURED_OUTPUT),
        ("ollama", Route.NATIVE_CHAT, Capability.STRUCTURED_OUTPUT),
        ("ollama", Route.NATIVE_GENERATE, Capability.STRUCTURED_OUTPUT),
    ],
)
def test_native_routes_show_features_in_their_own_spelling(runtime: str, route: Route, capability: Capability) -> None:
    with ContractServer(runtime, behaviour=FAST) as server:
        done = run_canary(place(server, route), capability)
        assert (done.finding.state, done.framing) == ("supported", Framing.JSON)


def test_a_feature_that_the_server_ignores_is_unknown() -> None:
    behaviour = Behaviour(tokens=6, fault="finish-stop")
    with ContractServer("vllm", behaviour=Behaviour(tokens=80)) as server:
        cut = run_canary(place(server, Route.CHAT_COMPLETIONS), Capability.STRUCTURED_OUTPUT)
        assert (cut.finding.state, cut.finding.reason) == ("unknown", "feature-absent")
    with ContractServer("vllm", behaviour=behaviour) as server:
        usage = run_canary(place(server, Route.CHAT_COMPLETIONS), Capability.FINAL_USAGE)
        assert usage.finding.state == "supported"


def test_missing_terminal_usage_is_not_promoted() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=4, fault="usage-absent")) as server:
        done = run_canary(place(server, Route.CHAT_COMPLETIONS), Capability.FINAL_USAGE)
        assert (done.finding.state, done.finding.reason) == ("unknown", "usage-missing")


def test_a_feature_without_a_request_on_the_route_sends_nothing() -> None:
    with ContractServer("vllm") as server:
        with pytest.raises(InputError, match="another route: --route"):
            run_canary(place(server, Route.COMPLETIONS), Capability.TOOLS)
        assert server.ledger.connections == 0


def test_a_capability_that_the_build_does_not_have_sends_nothing() -> None:
    with ContractServer("mlx-lm") as server:
        with pytest.raises(NotAuthorized, match="tasc runtimes show mlx-lm"):
            run_canary(place(server, Route.CHAT_COMPLETIONS), Capability.STRUCTURED_OUTPUT)
        assert server.ledger.connections == 0


def test_a_capability_probes_in_the_framing_that_it_needs() -> None:
    with ContractServer("vllm") as server:
        where = place(server, Route.CHAT_COMPLETIONS, Framing.JSON)
        assert canary_framing(where, Capability.STREAMING) is Framing.SSE
        assert canary_framing(where, Capability.FINAL_USAGE) is Framing.JSON


def test_the_answers_fingerprint_confirms_the_build_or_refutes_it() -> None:
    with ContractServer("vllm", behaviour=FAST) as server:
        assert run_canary(place(server), Capability.CHAT_COMPLETIONS).finding.build_seen
    with ContractServer("vllm", behaviour=Behaviour(tokens=4, fault="fingerprint-mismatch")) as server:
        found = run_canary(place(server), Capability.CHAT_COMPLETIONS).finding
        assert (found.state, found.reason, found.build_seen) == ("unknown", "build-differs", False)


# --- cancellation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", [name for name in RUNTIMES if name not in ("tgi", "lm-studio")])
def test_a_stream_is_left_in_its_midst_and_the_server_stays_well(runtime: str) -> None:
    with ContractServer(runtime, behaviour=Behaviour(ttft_ms=5, itl_ms=20, tokens=400)) as server:
        done = run_canary(place(server), Capability.CANCELLATION)
        assert (done.finding.state, done.finding.reason) == ("supported", "observed")
        assert done.finding.dispatch_state is DispatchState.SENT_UNKNOWN
        assert server.ledger.wait_for(lambda ledger: ledger.cancelled == 1)
        assert server.ledger.by_route.get("GET /health", 0) <= 1


def test_counters_are_recorded_after_an_abort() -> None:
    with ContractServer("vllm", behaviour=Behaviour(ttft_ms=5, itl_ms=20, tokens=400)) as server:
        found = run_canary(place(server), Capability.CANCELLATION).finding
        values = {item.metric: item.value for item in found.measured if not item.labels}
        assert values["requests-running"] == 0
        assert "generation-stopped" not in found.not_proved


def test_without_a_metric_the_end_of_the_generation_is_not_proved() -> None:
    with ContractServer("mlx-lm", behaviour=Behaviour(ttft_ms=5, itl_ms=20, tokens=400)) as server:
        assert "generation-stopped" in run_canary(place(server), Capability.CANCELLATION).finding.not_proved


def test_an_answer_that_ended_by_itself_shows_no_cancellation() -> None:
    with ContractServer("vllm", behaviour=Behaviour(tokens=1, events_per_write=50)) as server:
        found = run_canary(place(server), Capability.CANCELLATION).finding
        assert (found.state, found.reason) == ("unknown", "ended-before-abort")


# --- residency -----------------------------------------------------------------------------------------------------------


def test_a_cloud_model_of_ollama_is_refused_without_a_call() -> None:
    with ContractServer("ollama", behaviour=Behaviour(model="big:cloud")) as server:
        with pytest.raises((NotAuthorized, InputError)):
            run_canary(place(server, Route.NATIVE_CHAT), Capability.NATIVE_CHAT)
        assert server.ledger.inference_calls == 0


def test_mlx_is_refused_where_the_model_would_have_to_be_loaded() -> None:
    with ContractServer("mlx-lm") as server:
        with pytest.raises(NotAuthorized, match="no local endpoint of the model"):
            run_canary(place(server, Route.CHAT_COMPLETIONS, model="contract/elsewhere"), Capability.CHAT_COMPLETIONS)
        assert server.ledger.inference_calls == 0


def test_the_alias_of_the_model_that_mlx_was_started_with_needs_no_list() -> None:
    with ContractServer("mlx-lm", behaviour=Behaviour(tokens=4, model="default_model", fault="models-empty")) as server:
        done = run_canary(place(server, Route.CHAT_COMPLETIONS), Capability.CHAT_COMPLETIONS)
        assert (done.finding.state, server.ledger.inference_calls) == ("supported", 1)


def test_lm_studio_is_refused_where_no_instance_is_loaded() -> None:
    with ContractServer("lm-studio") as server:
        with pytest.raises(NotAuthorized, match="loads nothing"):
            run_canary(place(server, Route.NATIVE_CHAT, model="contract-elsewhere"), Capability.NATIVE_CHAT)
        assert server.ledger.inference_calls == 0


def test_a_local_server_whose_list_cannot_be_read_is_refused() -> None:
    behaviour = Behaviour(fault="server-error", fault_scope=FaultScope.OBSERVATION)
    with ContractServer("ollama", behaviour=behaviour) as server:
        with pytest.raises(NotAuthorized, match="unexpected-status"):
            run_canary(place(server, Route.NATIVE_CHAT), Capability.NATIVE_CHAT)
        assert server.ledger.inference_calls == 0
