"""Unattended windows and canaries through Dagster's own jobs and schedules, on a real instance and real servers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from tasc_collector.contracts.scalars import format_timestamp
from tasc_pipeline.control.authorizations import Spend
from tasc_pipeline.home import keys, receipts
from tasc_pipeline.home.ledger import read_entries
from tasc_pipeline.home.studies import load_study
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.instance import instance_of
from tasc_pipeline.partitions import PARTITIONS_NAME
from tasc_pipeline.prepare_jobs import PREPARE_OP, hourly_windows
from tasc_pipeline.probe_requests import authorized_canaries
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.sensors import window_launcher
from tasc_pipeline.steps.authorize import revoke
from tasc_pipeline.steps.catalogue import windows
from tests.support.authorized import authorized
from tests.support.window import World, now, with_instance, world

CANARY = ("inference-canary",)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, cases=2, recurring=True, route="chatCompletions") as found:
        with_instance(found.home)
        monkeypatch.setenv("TASC_HOME", str(found.home.root))
        yield found


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    from tasc_pipeline.definitions import defs

    return defs


def execute(
    defs: dg.Definitions, made: World, request: dg.RunRequest, job: str, partition: str | None = None
) -> dg.ExecuteInProcessResult:
    """Run what a schedule or sensor has requested."""
    with instance_of(made.home) as instance:
        return defs.resolve_job_def(job).execute_in_process(
            run_config=request.run_config, instance=instance, partition_key=partition, raise_on_error=False
        )


def ticked(made: World, schedule: dg.ScheduleDefinition, at: datetime | None = None) -> list[dg.RunRequest] | str:
    with dg.build_schedule_context(
        instance=dg.DagsterInstance.ephemeral(),
        scheduled_execution_time=at or now(),
        resources={"state": StateFolder()},
    ) as context:
        data = schedule.evaluate_tick(context)
    return list(data.run_requests or []) or str(data.skip_message)


def failure_of(result: dg.ExecuteInProcessResult) -> tuple[str, str]:
    """Message and category of a failed run."""
    assert not result.success
    [event] = [item for item in result.all_events if item.event_type_value == "STEP_FAILURE"]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None, "the failure is ours, not a crash"
    return str(failure.description), str(failure.metadata["category"].value)


def spends(made: World) -> dict[str, Spend]:
    entries = read_entries(made.home, load_study(made.home, "first").study)
    return {name: entry.counted for name, entry in entries.items()}


def test_every_automation_that_costs_is_off_at_first() -> None:
    for schedule in (hourly_windows, authorized_canaries):
        assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert (hourly_windows.job_name, authorized_canaries.job_name) == ("prepare_window", "probe_canary")


def test_without_an_authorization_every_tick_says_so(made: World) -> None:
    assert ticked(made, hourly_windows) == "no study has a standing authorization -> run: tasc authorize new"
    said = ticked(made, authorized_canaries)
    assert isinstance(said, str) and "the study has no standing authorization" in said


def test_canaries_window_and_run_follow_each_other_without_the_operators_key(made: World, defs: dg.Definitions) -> None:
    authorized(made.home, effects=CANARY, canary_calls_per_day=2)
    (made.home.keys / "operator.key").unlink()
    early = ticked(made, hourly_windows)
    assert isinstance(early, list)
    refused, category = failure_of(execute(defs, made, early[0], "prepare_window"))
    assert "no receipt admits it" in refused and category == "authorization"
    assert not any(made.home.windows.iterdir()) and made.inference_calls == (0, 0)

    canaries = ticked(made, authorized_canaries)
    assert isinstance(canaries, list) and len(canaries) == 2
    for request in canaries:
        assert request.tags["tasc/effect"] == "inference-canary"
        assert execute(defs, made, request, "probe_canary").success
    assert made.inference_calls == (1, 1)
    again, _ = failure_of(execute(defs, made, canaries[0], "probe_canary"))
    assert "a probe of this name was made before" in again
    assert ticked(made, authorized_canaries) == "every conditional route has a receipt that holds for a while"
    assert made.inference_calls == (1, 1)

    [request] = ticked(made, hourly_windows)
    assert isinstance(request, dg.RunRequest) and request.run_key is not None
    assert execute(defs, made, request, "prepare_window").success
    assert execute(defs, made, request, "prepare_window").success, "the same tick again"
    [key] = window_facts(made.home)
    with instance_of(made.home) as instance:
        assert instance.get_dynamic_partitions(PARTITIONS_NAME) == [key]
        with dg.build_sensor_context(
            instance=instance, resources={"state": StateFolder()}, definitions=defs
        ) as context:
            launched = window_launcher(context)
    assert isinstance(launched, dg.SensorResult)
    assert [item.partition_key for item in launched.run_requests or []] == [key], "it starts within 45 seconds"
    [line] = windows(made.home, now())
    assert (line.window_key, line.stage) == (key, "approved")
    assert set(spends(made)) == {item.run_config["ops"]["send_canary"]["config"]["request"] for item in canaries}


def test_a_window_prepared_by_the_job_is_collected_by_the_partitions_run_and_paid(
    made: World, defs: dg.Definitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasc_pipeline.steps import prepare

    authorized(made.home, effects=CANARY, canary_calls_per_day=2)
    for request in ticked(made, authorized_canaries):
        assert isinstance(request, dg.RunRequest) and execute(defs, made, request, "probe_canary").success
    (made.home.keys / "operator.key").unlink()
    key = prepare.prepare_window(made.home, "first", format_timestamp(now()), now(), lead_s=0.2).window_key
    with instance_of(made.home) as instance:
        instance.add_dynamic_partitions(PARTITIONS_NAME, [key])
    result = execute(defs, made, dg.RunRequest(), "shadow_window", key)
    assert result.success
    [plan] = [item for item in result.get_asset_materialization_events() if item.asset_key == dg.AssetKey("run_plans")]
    assert plan.materialization.metadata["authorization"].value == "hourly"
    assert made.inference_calls == (4, 4), "a canary, a warm-up and two cases each"
    assert spends(made)[key].calls == 6 and sum(item.calls for item in spends(made).values()) == 8


def test_a_run_whose_authorization_was_revoked_fails_with_its_category_and_sends_nothing(
    made: World, defs: dg.Definitions
) -> None:
    authorized(made.home)
    [request] = ticked(made, hourly_windows)
    assert isinstance(request, dg.RunRequest)
    revoke(made.home, "first", "hourly", "budget-frozen", now())
    said, category = failure_of(execute(defs, made, request, "prepare_window"))
    assert "was revoked" in said and "budget-frozen" in said and category == "authorization"
    skipped = ticked(made, hourly_windows)
    assert isinstance(skipped, str) and "was revoked" in skipped
    assert made.inference_calls == (0, 0)


def test_a_canary_beyond_its_count_is_not_requested_and_is_refused_where_it_is_asked_for(
    made: World, defs: dg.Definitions
) -> None:
    authorized(made.home, effects=CANARY, canary_calls_per_day=2)
    first = ticked(made, authorized_canaries)
    assert isinstance(first, list)
    authorized(made.home, effects=CANARY, canary_calls_per_day=1, authorization_id="smaller", at=now())
    revoke(made.home, "first", "hourly", "replaced", now())
    said = ticked(made, authorized_canaries)
    assert isinstance(said, str) and "0 of 1 canary calls are spent" in said and "1 too many" in said
    refused, category = failure_of(execute(defs, made, first[0], "probe_canary"))
    assert "was revoked" in refused and category == "authorization"
    assert made.inference_calls == (0, 0) and spends(made) == {}
    assert receipts.stored(made.home, keys.read_ring(made.home)).receipts == ()


def test_an_authorization_that_names_no_effect_requests_no_canary(made: World) -> None:
    authorized(made.home)
    said = ticked(made, authorized_canaries)
    assert isinstance(said, str) and "does not name the effect inference-canary" in said


def test_a_canary_is_due_again_when_most_of_its_receipts_validity_is_over(made: World, defs: dg.Definitions) -> None:
    authorized(made.home, effects=CANARY, canary_calls_per_day=4)
    for request in ticked(made, authorized_canaries):
        assert isinstance(request, dg.RunRequest) and execute(defs, made, request, "probe_canary").success
    assert isinstance(ticked(made, authorized_canaries, now() + timedelta(hours=17)), str)
    later = ticked(made, authorized_canaries, now() + timedelta(hours=19))
    assert isinstance(later, list) and len(later) == 2, "three quarters of 24 h are over"


def test_a_config_that_names_half_an_authorization_is_refused(made: World, defs: dg.Definitions) -> None:
    config = {
        "endpoint": "first/candidate",
        "capability": "chatCompletions",
        "effect": "inference-canary",
        "authorization": "hourly",
    }
    request = dg.RunRequest(run_config={"ops": {"send_canary": {"config": config}}})
    said, _ = failure_of(execute(defs, made, request, "probe_canary"))
    assert "authorization and request are given together" in said
    wrong = dg.RunRequest(run_config={"ops": {PREPARE_OP: {"config": {"study": "first", "at": "noon"}}}})
    said, _ = failure_of(execute(defs, made, wrong, "prepare_window"))
    assert "this is no instant" in said
    assert made.inference_calls == (0, 0)
