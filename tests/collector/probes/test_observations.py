"""Every observation route of every profile against its contract server: success, each fault, and each refusal."""

from __future__ import annotations

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.contract_servers.behaviour import FaultScope
from tasc_collector.contract_servers.runtimes.replies import SECRET_MARKER
from tasc_collector.errors import DispatchState, NotAuthorized
from tasc_collector.probes.judgement import kept_fields
from tasc_collector.probes.observations import KIND_OF, observation_route
from tasc_collector.runtimes.profile import Capability, CapabilityState, Effect, Expectation, Locality, ObservationKind
from tests.support.calls import NAME, LabNetwork
from tests.support.probing import RUNTIMES, profile_of, run_observation, subject

ROUTES = [(runtime, route.kind) for runtime in RUNTIMES for route in profile_of(runtime).observations]
DIGEST = "sha256:" + "5f1c" * 16


@pytest.mark.parametrize(("runtime", "kind"), ROUTES)
def test_every_route_is_supported_by_its_contract_server(runtime: str, kind: ObservationKind) -> None:
    with ContractServer(runtime) as server:
        found = run_observation(subject(server, revision=DIGEST), kind)
        assert (found.state, found.reason, found.status) == ("supported", "observed", 200)
        assert found.dispatch_state is DispatchState.COMPLETED
        assert server.ledger.requests == 1
        assert SECRET_MARKER not in str(found)


@pytest.mark.parametrize(("runtime", "kind"), ROUTES)
def test_a_route_makes_inference_only_where_its_effect_says_so(runtime: str, kind: ObservationKind) -> None:
    route = profile_of(runtime).observation(kind)
    assert route is not None
    with ContractServer(runtime) as server:
        run_observation(subject(server), kind)
        assert server.ledger.inference_calls <= (route.required_effect is Effect.INFERENCE_CANARY)


@pytest.mark.parametrize(("runtime", "kind"), ROUTES)
def test_another_effect_than_the_routes_own_sends_nothing(runtime: str, kind: ObservationKind) -> None:
    route = profile_of(runtime).observation(kind)
    assert route is not None
    with ContractServer(runtime) as server:
        for effect in set(Effect) - {route.required_effect}:
            with pytest.raises(NotAuthorized, match=f"--effect {route.required_effect}"):
                run_observation(subject(server), kind, effect)
        assert server.ledger.connections == 0


@pytest.mark.parametrize(("runtime", "kind"), ROUTES)
def test_a_route_that_the_policy_does_not_list_sends_nothing(runtime: str, kind: ObservationKind) -> None:
    route = profile_of(runtime).observation(kind)
    assert route is not None
    with ContractServer(runtime) as server:
        with pytest.raises(NotAuthorized, match="does not list this route"):
            run_observation(subject(server, leave_out=[route.path]), kind)
        assert server.ledger.connections == 0


FAULTS = {
    "not-found": ("unsupported", "route-absent"),
    "server-error": ("unknown", "unexpected-status"),
    "html-content-type": ("unknown", "content-type"),
    "error-200": ("unknown", "error-body"),
    "null-body": ("unknown", "shape-invalid"),
    "empty-body": ("unknown", "body-empty"),
    "text-200": ("unknown", "not-json"),
    "redirect": ("unknown", "unexpected-status"),
    "close-before-status": ("unknown", "connection-closed"),
    "reset-mid-body": ("unknown", "connection-reset"),
    "body-cut": ("unknown", "response-truncated"),
    "unauthorized": ("unknown", "unexpected-status"),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_model_list_is_its_own_outcome(runtime: str, fault: str) -> None:
    behaviour = Behaviour(fault=fault, fault_scope=FaultScope.OBSERVATION)
    with ContractServer(runtime, behaviour=behaviour) as server:
        found = run_observation(subject(server), ObservationKind.MODELS)
        assert (found.state, found.reason) == FAULTS[fault]


EVERY_ROUTE = {
    "not-found": ("unsupported", "route-absent"),
    "not-implemented": ("unknown", "not-enabled"),
    "server-error": ("unknown", "unexpected-status"),
    "unauthorized": ("unknown", "unexpected-status"),
    "redirect": ("unknown", "unexpected-status"),
    "html-content-type": ("unknown", "content-type"),
    "close-before-status": ("unknown", "connection-closed"),
}
ERROR_UNDER_200 = {
    Expectation.EMPTY_BODY: "body-not-empty",
    Expectation.EXACT_TEXT: "body-differs",
    Expectation.PROMETHEUS_TEXT: "content-type",
    Expectation.ITERATION_STATS: "shape-invalid",
}


@pytest.mark.parametrize(("runtime", "kind"), ROUTES)
def test_each_fault_of_each_route_is_its_own_outcome(runtime: str, kind: ObservationKind) -> None:
    route = profile_of(runtime).observation(kind)
    assert route is not None
    expected = EVERY_ROUTE | {"error-200": ("unknown", ERROR_UNDER_200.get(route.expects, "error-body"))}
    with ContractServer(runtime) as server:
        seen = {}
        for fault in expected:
            server.behaviour = Behaviour(fault=fault, fault_scope=FaultScope.OBSERVATION)
            found = run_observation(subject(server), kind)
            seen[fault] = (found.state, found.reason)
            assert not (found.build_seen or found.model_seen or found.revision_seen or found.facts or found.measured)
        assert seen == expected
        assert server.ledger.requests == len(expected), "no probe is tried again"


@pytest.mark.parametrize(("runtime", "kind"), ROUTES)
def test_a_route_that_hangs_speaks_no_tls_or_is_away_is_unknown(runtime: str, kind: ObservationKind) -> None:
    behaviour = Behaviour(fault="stall-headers", fault_scope=FaultScope.OBSERVATION)
    with ContractServer(runtime, behaviour=behaviour) as server:
        hung = run_observation(subject(server, duration_ms=200), kind)
        assert (hung.state, hung.dispatch_state) == ("unknown", DispatchState.SENT_UNKNOWN)
        assert hung.reason in {"headers-timeout", "deadline-exceeded"}
        server.behaviour = Behaviour()
        plain = run_observation(subject(server, origin=f"https://{NAME}"), kind, network=LabNetwork(server.port))
        assert (plain.state, plain.reason, plain.dispatch_state) == ("unknown", "tls-failed", DispatchState.NOT_SENT)
        gone = subject(server)
    away = run_observation(gone, kind)
    assert (away.state, away.reason, away.dispatch_state) == ("unknown", "connect-refused", DispatchState.NOT_SENT)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_list_without_an_entry_and_one_with_two_of_one_name_are_told_apart(runtime: str) -> None:
    seen = {}
    with ContractServer(runtime) as server:
        for fault in ("models-none", "models-twice"):
            server.behaviour = Behaviour(fault=fault)
            seen[fault] = run_observation(subject(server), ObservationKind.MODELS)
    assert {fault: (found.state, found.reason, found.model_seen) for fault, found in seen.items()} == {
        "models-none": ("unknown", "no-model", False),
        "models-twice": ("unknown", "model-twice", False),
    }


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("fault", ["models-empty", "models-other"])
def test_an_empty_or_foreign_model_list_proves_nothing(runtime: str, fault: str) -> None:
    with ContractServer(runtime, behaviour=Behaviour(fault=fault)) as server:
        found = run_observation(subject(server), ObservationKind.MODELS)
        assert found.state == "unknown"
        assert not found.model_seen


def test_a_model_that_is_not_listed_is_said() -> None:
    with ContractServer("vllm") as server:
        found = run_observation(subject(server, model="contract/elsewhere"), ObservationKind.MODELS)
        assert (found.state, found.reason) == ("unknown", "model-absent")


def test_ollama_confirms_the_revision_by_its_digest_and_refuses_another() -> None:
    with ContractServer("ollama") as server:
        right = run_observation(subject(server, revision=DIGEST), ObservationKind.MODELS)
        assert (right.model_seen, right.revision_seen) == (True, True)
        wrong = run_observation(subject(server, revision="sha256:" + "0" * 64), ObservationKind.MODELS)
        assert (wrong.state, wrong.reason) == ("unknown", "revision-differs")
        unpinned = run_observation(subject(server, revision="unknown"), ObservationKind.MODELS)
        assert (unpinned.state, unpinned.model_seen, unpinned.revision_seen) == ("supported", True, False)


def test_a_build_is_confirmed_only_where_the_wire_names_it() -> None:
    seen = {}
    for runtime in RUNTIMES:
        with ContractServer(runtime) as server:
            if profile_of(runtime).observation(ObservationKind.VERSION) is not None:
                seen[runtime] = run_observation(subject(server), ObservationKind.VERSION).build_seen
    assert seen == {
        "llama.cpp": False, "ollama": True, "sglang": True, "tensorrt-llm": True, "tgi": False, "vllm": True,
    }  # fmt: skip


def test_tgi_health_is_passive_while_healthy_and_is_authorized_as_the_canary_that_it_may_be() -> None:
    with ContractServer("tgi", behaviour=Behaviour(fault="unhealthy")) as server:
        found = run_observation(subject(server), ObservationKind.LIVENESS)
        assert (found.state, found.reason, found.status) == ("unknown", "unexpected-status", 503)
        with pytest.raises(NotAuthorized, match="inference-canary"):
            run_observation(subject(server), ObservationKind.LIVENESS, Effect.NON_MUTATING)


def test_iteration_statistics_may_be_empty_without_being_an_error() -> None:
    with ContractServer("tensorrt-llm", behaviour=Behaviour(fault="json-metrics-empty")) as server:
        found = run_observation(subject(server), ObservationKind.JSON_METRICS)
        assert found.state == "supported"
        assert {item.value for item in found.measured} == {None}
        assert found.not_proved == ("iteration-statistics",)


def test_metrics_that_are_not_switched_on_are_unknown_with_their_reason() -> None:
    with ContractServer("llama.cpp", behaviour=Behaviour(fault="metrics-501")) as server:
        found = run_observation(subject(server), ObservationKind.PROMETHEUS)
        assert (found.state, found.reason, found.status) == ("unknown", "not-enabled", 501)


def test_an_exposition_without_a_known_family_shows_nothing() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="metrics-without-families")) as server:
        found = run_observation(subject(server), ObservationKind.PROMETHEUS)
        assert (found.state, found.reason) == ("unknown", "no-known-metric")


def test_a_hung_server_ends_with_a_timeout() -> None:
    behaviour = Behaviour(fault="stall-body", fault_scope=FaultScope.OBSERVATION)
    with ContractServer("vllm", behaviour=behaviour) as server:
        found_subject = subject(server)
        short = found_subject.read.policy.model_copy(update={"maximum_request_duration_ms": 300})
        hung = type(found_subject)(
            type(found_subject.read)(short, "main", "vllm", "0.26.0"), found_subject.instance, found_subject.profile
        )
        found = run_observation(hung, ObservationKind.MODELS)
        assert found.state == "unknown"
        assert found.reason in {"body-timeout", "deadline-exceeded"}
        assert found.dispatch_state is DispatchState.SENT_UNKNOWN


def test_a_refused_connection_was_not_sent() -> None:
    with ContractServer("vllm", behaviour=Behaviour(fault="refused")) as server:
        found = run_observation(subject(server), ObservationKind.LIVENESS)
        assert (found.state, found.reason) == ("unknown", "connect-refused")
        assert found.dispatch_state is DispatchState.NOT_SENT


def test_secrets_and_paths_beside_the_allowlisted_fields_are_never_read_out() -> None:
    answer = {
        "version": "1",
        "api_key": "sk-x",
        "inner": {"n": 3, "path": "/srv/model"},
        "many": [{"id": "a"}, {"id": "b"}],
    }
    fields = ("version", "inner.n", "inner.path", "many[].id", "absent")
    assert kept_fields(answer, fields) == {"version": "1", "inner.n": 3, "many.0.id": "a", "many.1.id": "b"}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_capability_without_a_route_is_refused_with_the_reason(runtime: str) -> None:
    profile = profile_of(runtime)
    for capability in KIND_OF:
        has_route = profile.observation(KIND_OF[capability]) is not None
        if has_route and profile.state(capability) is not CapabilityState.UNSUPPORTED:
            assert observation_route(profile, capability, alias="main").method == "GET"
            continue
        with pytest.raises(NotAuthorized, match=f"tasc runtimes show {runtime}"):
            observation_route(profile, capability, alias="main")


def test_no_table_lists_a_route_that_changes_the_server() -> None:
    for runtime in RUNTIMES:
        with ContractServer(runtime) as server:
            for route in profile_of(runtime).observations:
                run_observation(subject(server), route.kind)
            assert not any(entry.mutating for entry in server.ledger.entries)


def test_local_only_runtimes_have_a_residency_rule() -> None:
    local = {runtime for runtime in RUNTIMES if profile_of(runtime).locality is Locality.LOCAL_ONLY}
    assert local == {runtime for runtime in RUNTIMES if profile_of(runtime).residency is not None}


def test_the_version_route_of_another_build_is_never_supported() -> None:
    with ContractServer("vllm") as server:
        other = subject(server)
        drifted = other.instance.model_copy(
            update={"runtime": other.instance.runtime.model_copy(update={"build": "0.25.0"})}
        )
        found = run_observation(type(other)(other.read, drifted, other.profile), ObservationKind.VERSION)
        assert (found.state, found.reason) == ("unknown", "build-differs")


def test_capabilities_of_observation_routes_are_five() -> None:
    assert set(KIND_OF) == {
        Capability.MODEL_DISCOVERY, Capability.LIVENESS, Capability.READINESS, Capability.PROMETHEUS_METRICS,
        Capability.JSON_METRICS,
    }  # fmt: skip
