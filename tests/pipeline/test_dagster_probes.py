"""Probes under Dagster on a real instance: jobs that probe, what they are refused, the observed endpoints, their check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy
from dagster._core.definitions.observe import observe

from tasc_collector.contract_servers import Behaviour
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.collection import CollectionPlan
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.probe import TextVerification
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.errors import TascError
from tasc_collector.runtimes.profile import Capability, Effect
from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.home.windows import PLAN, WindowFolder
from tasc_pipeline.instance import instance_of
from tasc_pipeline.probe_jobs import failure_of as dagster_failure
from tasc_pipeline.probe_requests import hourly_endpoint_check, passive_probes, receipts_run_out
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import plan
from tasc_pipeline.steps.endpoints import Problem, endpoints_view
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tasc_pipeline.steps.probe import ProbeOptions, probe_endpoint
from tasc_pipeline.steps.probe_rounds import due_studies
from tests.support.window import World, fresh_home, now, with_instance, world

CANARY = ProbeOptions(Effect.INFERENCE_CANARY)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, cases=2, route="chatCompletions") as found:
        with_instance(found.home)
        monkeypatch.setenv("TASC_HOME", str(found.home.root))
        yield found


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    from tasc_pipeline.definitions import defs

    return defs


def execute(
    defs: dg.Definitions, made: World, job: str, op: str | None = None, **config: object
) -> dg.ExecuteInProcessResult:
    settings = {"ops": {op: {"config": config}}} if op else None
    with instance_of(made.home) as instance:
        return defs.resolve_job_def(job).execute_in_process(
            run_config=settings, instance=instance, raise_on_error=False
        )


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    [event] = [item for item in result.all_events if item.event_type_value == "STEP_FAILURE"]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None, "the failure is ours, not a crash"
    return str(failure.description)


def observed(result: dg.ExecuteInProcessResult) -> dg.AssetObservation:
    [event] = result.get_asset_observation_events()
    return event.asset_observation_data.asset_observation


def stored(made: World) -> dict[tuple[str, str], str]:
    """State of every stored receipt, by alias and capability."""
    found = receipts.stored(made.home, keys.read_ring(made.home))
    assert found.untrusted == ()
    return {(item.endpoint_alias, item.capability): item.state for item in found.receipts}


def at(hours: float = 0.0) -> str:
    return plan.format_timestamp(now() + timedelta(hours=hours))


def rows_of(observation: dg.AssetObservation) -> dict[tuple[object, object], dict[str, object]]:
    table = observation.metadata["table"]
    assert isinstance(table, dg.TableMetadataValue)
    return {(row.data["endpoint"], row.data["capability"]): dict(row.data) for row in table.records}


def test_a_passive_round_stores_receipts_of_both_endpoints_and_makes_no_server_generate(
    made: World, defs: dg.Definitions
) -> None:
    result = execute(defs, made, "probe_endpoints", "probe_study_passively", study="first")
    assert result.success
    assert stored(made) == {
        ("champion", "modelDiscovery"): "supported",
        ("champion", "liveness"): "supported",
        ("champion", "prometheusMetrics"): "supported",
        ("candidate", "modelDiscovery"): "supported",
        ("candidate", "liveness"): "supported",
        ("candidate", "prometheusMetrics"): "supported",
    }
    assert made.inference_calls == (0, 0)
    rows = rows_of(observed(result))
    assert set(rows) == {(f"first/{alias}", capability) for alias, capability in stored(made)}
    assert all(row["state"] == "supported" and row["problem"] == "" for row in rows.values())


def test_a_server_that_is_down_is_an_observation_and_not_a_failed_run(made: World, defs: dg.Definitions) -> None:
    made.candidate.behaviour = Behaviour(fault="server-error")
    made.champion.stop()
    result = execute(defs, made, "probe_endpoints", "probe_study_passively", study="first")
    assert result.success
    assert {state for (alias, _), state in stored(made).items() if alias == "champion"} == {"unknown"}
    assert observed(result).metadata["receipts_unknown"].value >= 3


def test_an_unknown_study_fails_with_our_message_and_is_never_retried(made: World, defs: dg.Definitions) -> None:
    result = execute(defs, made, "probe_endpoints", "probe_study_passively", study="second")
    assert failure_of(result) == ("second: there is no such study (known: first) -> make one with: tasc study new")
    assert dagster_failure(TascError("no")).allow_retries is False
    for name in ("probe_endpoints", "probe_canary", "probe_consumptive"):
        assert defs.resolve_job_def(name).tags["dagster/max_retries"] == "0"


def test_a_canary_job_stores_its_receipt_and_updates_the_endpoints(made: World, defs: dg.Definitions) -> None:
    result = execute(
        defs,
        made,
        "probe_canary",
        "send_canary",
        endpoint="first/candidate",
        capability="chatCompletions",
        effect="inference-canary",
    )
    assert result.success
    assert made.inference_calls == (0, 1)
    assert stored(made) == {("candidate", "chatCompletions"): "supported"}
    view = endpoints_view(made.home, at())
    assert observed(result).tags["dagster/data_version"] == view.data_version


def test_a_job_is_refused_any_effect_but_its_own_and_sends_nothing(made: World, defs: dg.Definitions) -> None:
    for job, op, effect in (
        ("probe_canary", "send_canary", "non-mutating"),
        ("probe_canary", "send_canary", "consumptive"),
        ("probe_consumptive", "read_consumptively", "inference-canary"),
    ):
        result = execute(defs, made, job, op, endpoint="first/candidate", capability="chatCompletions", effect=effect)
        assert "the effect in the run's config is not the job's own" in failure_of(result)
    assert made.inference_calls == (0, 0) and stored(made) == {}


def test_the_effect_has_no_default(made: World, defs: dg.Definitions) -> None:
    for job, op in (("probe_canary", "send_canary"), ("probe_consumptive", "read_consumptively")):
        with pytest.raises(dg.DagsterInvalidConfigError, match="effect"):
            execute(defs, made, job, op, endpoint="first/candidate", capability="chatCompletions")


def test_a_consumptive_job_does_not_read_what_only_needs_a_passive_probe(made: World, defs: dg.Definitions) -> None:
    result = execute(
        defs,
        made,
        "probe_consumptive",
        "read_consumptively",
        endpoint="first/champion",
        capability="liveness",
        effect="consumptive",
    )
    assert "needs non-mutating, named consumptive" in failure_of(result)
    assert stored(made) == {}


def test_words_that_name_nothing_are_refused(made: World, defs: dg.Definitions) -> None:
    for endpoint, capability, expected in (
        ("candidate", "chatCompletions", "write STUDY/ALIAS"),
        ("first/nobody", "chatCompletions", "use one of candidate, champion"),
        ("first/candidate", "telepathy", "there is no such capability"),
    ):
        result = execute(
            defs,
            made,
            "probe_canary",
            "send_canary",
            endpoint=endpoint,
            capability=capability,
            effect="inference-canary",
        )
        assert expected in failure_of(result)


def test_a_capability_that_was_not_shown_leaves_its_receipt_and_fails_the_run(
    made: World, defs: dg.Definitions
) -> None:
    made.candidate.behaviour = Behaviour(fault="server-error")
    result = execute(
        defs,
        made,
        "probe_canary",
        "send_canary",
        endpoint="first/candidate",
        capability="chatCompletions",
        effect="inference-canary",
    )
    assert failure_of(result).startswith("not shown: unexpected-status")
    assert stored(made) == {("candidate", "chatCompletions"): "unknown"}


def test_metadata_holds_no_origin_and_no_port(made: World, defs: dg.Definitions) -> None:
    result = execute(defs, made, "probe_endpoints", "probe_study_passively", study="first")
    shown = str(observed(result).metadata)
    for server in (made.champion, made.candidate):
        assert server.origin not in shown and str(server.port) not in shown
    assert "127.0.0.1" not in shown


def test_the_data_version_changes_with_a_receipt_and_not_with_the_clock(made: World) -> None:
    probe_endpoint(made.home, "first", "champion", Capability.LIVENESS, ProbeOptions(Effect.NON_MUTATING))
    first = endpoints_view(made.home, at()).data_version
    assert endpoints_view(made.home, at(48)).data_version == first
    probe_endpoint(made.home, "first", "champion", Capability.LIVENESS, ProbeOptions(Effect.NON_MUTATING))
    assert endpoints_view(made.home, at()).data_version != first


def test_the_asset_is_observable_by_hand(made: World, defs: dg.Definitions) -> None:
    probe_endpoint(made.home, "first", "champion", Capability.LIVENESS, ProbeOptions(Effect.NON_MUTATING))
    from tasc_pipeline.assets.endpoints import runtime_endpoints

    with instance_of(made.home) as instance:
        result = observe([runtime_endpoints], instance=instance, resources={"state": StateFolder()})
    assert result.success
    assert observed(result).metadata["receipts"].value == 1


def test_receipts_that_no_window_has_loaded_for_a_week_are_stale(defs: dg.Definitions) -> None:
    [spec] = [item for item in defs.resolve_all_asset_specs() if item.key == dg.AssetKey("capability_receipts")]
    policy = spec.freshness_policy
    assert isinstance(policy, TimeWindowFreshnessPolicy) and policy.warn_window is not None
    assert policy.warn_window.to_timedelta() == timedelta(hours=24)
    assert policy.fail_window.to_timedelta() == timedelta(days=7)


# --- the check --------------------------------------------------------------------------------------------------------


def verdict_of(defs: dg.Definitions, made: World) -> dg.AssetCheckEvaluation:
    result = execute(defs, made, "check_endpoints")
    [evaluation] = result.get_asset_check_evaluations()
    assert evaluation.check_name == "receipts_hold"
    return evaluation


def text_of(evaluation: dg.AssetCheckEvaluation, name: str) -> str:
    return str(evaluation.metadata[name].value)


def test_valid_receipts_pass_and_an_expired_one_warns(made: World, defs: dg.Definitions) -> None:
    probe_endpoint(made.home, "first", "champion", Capability.LIVENESS, ProbeOptions(Effect.NON_MUTATING))
    assert verdict_of(defs, made).passed
    short = ProbeOptions(Effect.NON_MUTATING, valid_hours=0.001 / 3600)
    probe_endpoint(made.home, "first", "candidate", Capability.LIVENESS, short)
    expired = verdict_of(defs, made)
    assert not expired.passed and expired.severity is dg.AssetCheckSeverity.WARN
    assert text_of(expired, "first/candidate liveness") == (
        "expired -> probe again: tasc probe first/candidate liveness"
    )


def test_a_receipt_of_another_configuration_is_an_error(made: World, defs: dg.Definitions) -> None:
    probe_endpoint(made.home, "first", "candidate", Capability.LIVENESS, ProbeOptions(Effect.NON_MUTATING))
    again = Server(made.candidate.origin, configuration_digest="sha256:" + "7" * 64)
    new_study(
        made.home,
        NewStudy("second", "tests", Server(made.champion.origin), (again,), made.prompts, route="chatCompletions"),
        now(),
    )
    failed = verdict_of(defs, made)
    assert not failed.passed and failed.severity is dg.AssetCheckSeverity.ERROR
    assert text_of(failed, "second/candidate liveness").startswith("another-identity (configuration_digest)")
    assert "first/candidate liveness" not in failed.metadata, "the receipt still holds for the study it was made for"
    probe_endpoint(made.home, "second", "candidate", Capability.LIVENESS, ProbeOptions(Effect.NON_MUTATING))
    assert verdict_of(defs, made).passed, "each study goes by the newest receipt of its own identity"


def store_as_if_probed(made: World, receipt: CapabilityReceipt, **changes: object) -> None:
    """A later receipt of the same probe whose answer reported something else."""
    study = load_study(made.home, "first").study
    fields = {
        name: getattr(receipt, name)
        for name in type(receipt).model_fields
        if name not in ("version", "digest", "signature")
    }
    key = keys.signing_key(made.home, study.keys.collector_signing)
    later = {"observed_at": at(), "valid_until": at(24)}
    signed = CapabilityReceipt.sign_with(key, receipt.signature.authority_key_id, **(fields | later | changes))
    receipts.store(made.home, signed)


def test_a_server_that_no_longer_reports_what_it_did_in_the_last_window_has_drifted(
    made: World, defs: dg.Definitions
) -> None:
    canary = {
        alias: probe_endpoint(made.home, "first", alias, Capability.CHAT_COMPLETIONS, CANARY).receipt
        for alias in ("champion", "candidate")
    }
    made.approved_window()
    assert verdict_of(defs, made).passed
    before = canary["champion"]
    assert before.identity_verification.model_id.basis == "provider-reported"
    silent = before.identity_verification.model_copy(
        update={"model_id": TextVerification(basis="unverified", observed=None)}
    )
    store_as_if_probed(made, before, identity_verification=silent, evidence=None, state="unknown", reason="timeout")
    assert verdict_of(defs, made).passed, "an answer that failed reports nothing"
    store_as_if_probed(made, before, identity_verification=silent, evidence=None)
    drifted = verdict_of(defs, made)
    assert not drifted.passed and drifted.severity is dg.AssetCheckSeverity.ERROR
    assert text_of(drifted, "first/champion chatCompletions").startswith("drifted (model_id)")


def test_one_plan_per_study_is_read_and_it_is_the_last_whose_signature_holds(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for alias in ("champion", "candidate"):
        probe_endpoint(made.home, "first", alias, Capability.CHAT_COMPLETIONS, CANARY)
    windows = [made.approved_window() for _ in range(4)]
    facts = window_facts(made.home)
    plans = {key: WindowFolder(made.home, key).plan(keys.read_ring(made.home)).record for key in windows}
    assert [facts[key].plan_issued_at for key in windows] == [plans[key].issued_at for key in windows]
    assert windows == sorted(windows, key=lambda key: plans[key].issued_at)
    read: list[str] = []
    as_it_is = WindowFolder.plan

    def counted(folder: WindowFolder, ring: KeyRing) -> Parsed[CollectionPlan]:
        read.append(folder.window_key)
        return as_it_is(folder, ring)

    monkeypatch.setattr(WindowFolder, "plan", counted)
    endpoints_view(made.home, at())
    assert read == windows[-1:]
    read.clear()
    forged = made.home.window(windows[-1]) / PLAN
    forged.write_text(forged.read_text().replace('"sse"', '"json"'))
    endpoints_view(made.home, at())
    assert read == [windows[-1], windows[-2]], "a plan that nobody signed is passed over"


def test_an_answer_that_contradicts_the_declaration_is_said_at_once(made: World) -> None:
    made.candidate.behaviour = Behaviour(model="another")
    probe_endpoint(made.home, "first", "candidate", Capability.MODEL_DISCOVERY, ProbeOptions(Effect.NON_MUTATING))
    [line] = endpoints_view(made.home, at()).lines
    assert line.problem is Problem.SERVER_DIFFERS and line.detail == line.reason


# --- requests ---------------------------------------------------------------------------------------------------------


def test_schedules_and_sensor_are_off_and_only_the_authorized_one_requests_canaries(
    made: World, defs: dg.Definitions
) -> None:
    assert passive_probes.default_status is dg.DefaultScheduleStatus.STOPPED
    assert receipts_run_out.default_status is dg.DefaultSensorStatus.STOPPED
    assert passive_probes.job_name == "probe_endpoints" == receipts_run_out.job_name
    automated = [*(defs.schedules or ()), *(defs.sensors or ())]
    targets = {target.job_name for item in automated for target in getattr(item, "targets", ())}
    assert "probe_consumptive" not in targets
    assert [item.name for item in defs.schedules or () if item.job_name == "probe_canary"] == ["authorized_canaries"]


def test_the_schedule_requests_one_run_per_study(made: World) -> None:
    with scheduled(made.home, datetime(2026, 3, 1, 6, 17, tzinfo=UTC)) as context:
        [request] = list(passive_probes(context))
    assert request.run_key == "first:20260301T0617"
    assert request.run_config["ops"] == {"probe_study_passively": {"config": {"study": "first", "valid_hours": 24.0}}}
    assert made.inference_calls == (0, 0) and stored(made) == {}


def test_the_check_of_receipts_is_on_by_itself_every_hour_because_it_only_reads(
    made: World, defs: dg.Definitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hourly_endpoint_check.default_status is dg.DefaultScheduleStatus.RUNNING
    assert (hourly_endpoint_check.job_name, hourly_endpoint_check.cron_schedule) == ("check_endpoints", "7 * * * *")
    short = ProbeOptions(Effect.NON_MUTATING, valid_hours=0.001 / 3600)
    probe_endpoint(made.home, "first", "champion", Capability.LIVENESS, short)
    before = (made.champion.ledger.requests, made.candidate.ledger.requests)
    [request] = checks_asked(made.home)
    assert isinstance(request, dg.RunRequest)
    assert (request.run_key, request.tags["tasc/effect"]) == ("20260301T0607", "none")
    assert not verdict_of(defs, made).passed
    assert (made.champion.ledger.requests, made.candidate.ledger.requests) == before
    monkeypatch.setenv("TASC_HOME", str(fresh_home(tmp_path / "empty").root))
    [skipped] = checks_asked(Home(tmp_path / "empty" / "home"))
    assert isinstance(skipped, dg.SkipReason)


@contextmanager
def scheduled(home: Home, moment: datetime) -> Iterator[dg.ScheduleEvaluationContext]:
    with (
        instance_of(home) as instance,
        dg.build_schedule_context(
            instance=instance, scheduled_execution_time=moment, resources={"state": StateFolder()}
        ) as context,
    ):
        yield context


def checks_asked(home: Home) -> list[object]:
    with scheduled(home, datetime(2026, 3, 1, 6, 7, tzinfo=UTC)) as context:
        return list(hourly_endpoint_check(context))


def test_the_sensor_asks_once_for_each_state_of_the_receipts(made: World, defs: dg.Definitions) -> None:
    first, again = sensed(made), sensed(made)
    assert len(first) == 1 and first == again, "the same run key: Dagster starts one run"
    assert execute(defs, made, "probe_endpoints", "probe_study_passively", study="first").success
    assert sensed(made) == []
    late = at(19)
    assert list(due_studies(endpoints_view(made.home, late), late)) == ["first"], "three quarters of 24 h are over"
    early = at(17)
    assert due_studies(endpoints_view(made.home, early), early) == {}


def sensed(made: World) -> list[str | None]:
    with (
        instance_of(made.home) as instance,
        dg.build_sensor_context(instance=instance, resources={"state": StateFolder()}) as context,
    ):
        data = receipts_run_out.evaluate_tick(context)
    return [request.run_key for request in data.run_requests or []]
