"""Sensors of windows: what each asks for, that it asks once, and that a forged or unreadable window asks for nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tasc_pipeline import notice_sensors, sensors
from tasc_pipeline.definitions import defs
from tasc_pipeline.home.notices import stored
from tasc_pipeline.home.window_index import INDEX, current_keys, window_facts
from tasc_pipeline.home.windows import DECLARATION, LINK
from tasc_pipeline.instance import add_partition, instance_of
from tasc_pipeline.notice_sensors import overdue_windows, run_failures, verdict_notices
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import collect, notices
from tests.support.window import World, with_instance, world

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path, cases=3, warm_up=0) as found:
        with_instance(found.home)
        monkeypatch.setenv("TASC_HOME", str(found.home.root))
        yield found


def tick(made: World, sensor: Callable[..., Any], cursor: str | None = None) -> dg.SensorResult:
    """One evaluation of a sensor on the world's instance."""
    with (
        instance_of(made.home) as instance,
        dg.build_sensor_context(
            instance=instance, cursor=cursor, resources={"state": StateFolder()}, definitions=defs
        ) as context,
    ):
        result = sensor(context)
    return dg.SensorResult(skip_reason=result) if isinstance(result, dg.SkipReason) else result


def asked(result: dg.SensorResult) -> list[tuple[str | None, str | None]]:
    return [(item.partition_key, item.run_key) for item in result.run_requests or []]


def at(seconds: float) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) + timedelta(seconds=seconds)


def test_the_launcher_asks_once_for_an_approved_window_that_is_about_to_start(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon, later = made.approved_window(lead_s=20), made.approved_window(lead_s=3600)
    digest = window_facts(made.home)[soon].plan_digest or ""
    first = tick(made, sensors.window_launcher)
    assert asked(first) == [(soon, f"{soon}:{digest[7:39]}")]
    [added] = first.dynamic_partitions_requests or []
    assert added.partition_keys == [soon], "a run needs its partition, whoever comes first"
    assert asked(tick(made, sensors.window_launcher, first.cursor)) == []
    assert asked(tick(made, sensors.window_launcher, "not json")) == asked(first), "the run key makes it one run"
    monkeypatch.setattr(sensors, "utc_now", at(3600))
    assert [key for key, _ in asked(tick(made, sensors.window_launcher, first.cursor))] == [later]
    monkeypatch.setattr(sensors, "utc_now", at(24 * 3600))
    assert asked(tick(made, sensors.window_launcher)) == [], "a window that is over is never collected"


def test_the_launcher_asks_in_the_next_tick_for_what_was_planned_again_and_is_over_its_bound(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = sorted([made.approved_window(lead_s=20), made.approved_window(lead_s=20)])
    cursor = tick(made, sensors.window_launcher).cursor
    for number, key in enumerate(keys):
        path = made.home.window(key) / "approval.json"
        approval = json.loads(path.read_text())
        path.unlink()
        path.write_text(json.dumps(approval | {"planDigest": f"sha256:{number}" + "a" * 63}))
    monkeypatch.setattr(sensors, "REQUESTS_PER_TICK", 1)
    rounds = []
    for _ in range(3):
        found = tick(made, sensors.window_launcher, cursor)
        rounds.append(asked(found))
        cursor = found.cursor
    assert rounds == [[(keys[0], f"{keys[0]}:0" + "a" * 31)], [(keys[1], f"{keys[1]}:1" + "a" * 31)], []]


def test_the_registry_adds_what_is_new_and_remembers_nothing(made: World) -> None:
    key = made.approved_window()
    found = tick(made, sensors.window_registry)
    assert [item.partition_keys for item in found.dynamic_partitions_requests or []] == [[key]]
    assert found.cursor is None
    add_partition(made.home, key)
    assert tick(made, sensors.window_registry).dynamic_partitions_requests == []


def look_for_untold(made: World) -> list[str | None]:
    """Run keys that ``overdue_windows`` requests."""
    with dg.build_sensor_context(resources={"state": StateFolder()}) as context:
        found = list(overdue_windows(context))
    return [item.run_key for item in found if isinstance(item, dg.RunRequest)]


def test_a_notice_that_was_kept_and_not_told_is_requested_again_once_an_hour(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = made.approved_window()
    notices.after_failure(made.home, key, "run-1", "transport")
    moment = datetime(2026, 11, 29, 10, 5, tzinfo=UTC)
    monkeypatch.setattr(notice_sensors, "utc_now", lambda: moment)
    [first] = look_for_untold(made)
    assert look_for_untold(made) == [first] and str(first).endswith(":2026-11-29T10")
    moment += timedelta(hours=1)
    [second] = look_for_untold(made)
    notices.after_failure(made.home, key, "run-2", "transport")
    [third] = look_for_untold(made)
    assert len({first, second, third}) == 3, "an hour later, and where there is more to tell, it is another run"
    with instance_of(made.home) as instance:
        assert defs.resolve_job_def("publish_notices").execute_in_process(instance=instance).success
    assert look_for_untold(made) == []


def test_a_run_that_tells_goes_on_after_a_study_that_cannot_and_fails_with_its_name(made: World) -> None:
    key = made.approved_window()
    notices.after_failure(made.home, key, "run-1", "transport")
    bad = made.home.study("a-bad-one")
    bad.mkdir()
    (bad / "study.toml").write_text("")
    (bad / "notices.toml").write_text("agreeing_windows = 0\n")
    with instance_of(made.home) as instance:
        job = defs.resolve_job_def("publish_notices")
        result = job.execute_in_process(instance=instance, raise_on_error=False)
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failure.user_failure_data is not None
    assert failure.user_failure_data.metadata["failed"].value == "a-bad-one"
    assert notices.unpublished(made.home) == [], "the row of the other study is published"


def test_the_launcher_leaves_windows_alone_that_nobody_approved_or_that_cannot_be_read(made: World) -> None:
    from tasc_pipeline.steps import seal
    from tests.support.window import now

    seal.seal(made.home, "first", seal.SealOptions(), now())
    broken = made.approved_window()
    (made.home.window(broken) / DECLARATION).write_text("{")
    forged = made.home.windows / "forged.r01-00000000"
    forged.mkdir()
    assert asked(tick(made, sensors.window_launcher)) == []
    assert window_facts(made.home)[broken].readable is False
    assert "forged.r01-00000000" not in window_facts(made.home)


def test_settlement_asks_for_a_window_that_is_over_and_was_left_and_not_for_one_that_was_never_begun(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, never = made.approved_window(), made.approved_window()
    collect.collect(made.home, left, show=lambda _: None)
    assert asked(tick(made, sensors.settlement)) == [], "it is not over yet"
    monkeypatch.setattr(sensors, "utc_now", at(24 * 3600))
    first = tick(made, sensors.settlement)
    [(key, run_key)] = asked(first)
    assert key == left and str(run_key).startswith(f"{left}:settle:")
    assert (first.run_requests or [])[0].tags["tasc/effect"] == "none"
    assert asked(tick(made, sensors.settlement, first.cursor)) == [], "the same journal is not asked for again"
    assert never not in str(first.cursor)


def test_settlement_leaves_a_window_to_a_sender_that_is_alive(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key = made.approved_window()
    collect.collect(made.home, key, show=lambda _: None)
    monkeypatch.setattr(sensors, "utc_now", at(24 * 3600))
    monkeypatch.setattr(sensors, "held_by", lambda fs, folder: "process 1 on this host")
    assert asked(tick(made, sensors.settlement)) == []


def run_job(made: World, job: str, key: str) -> dg.ExecuteInProcessResult:
    add_partition(made.home, key)
    with instance_of(made.home) as instance:
        return defs.resolve_job_def(job).execute_in_process(partition_key=key, instance=instance, raise_on_error=False)


def test_a_settlement_sends_nothing_even_where_the_window_is_open(made: World) -> None:
    key = made.approved_window()
    result = run_job(made, "settle_window", key)
    assert made.inference_calls == (0, 0)
    assert not result.success, "executions are pending, so the window cannot be closed"
    assert not (made.home.window(key) / LINK).exists()


def test_a_failed_run_becomes_a_notice_with_window_and_category(made: World) -> None:
    key = made.approved_window()
    (made.home.window(key) / "approval.json").unlink()
    result = run_job(made, "shadow_window", key)
    with instance_of(made.home) as instance:
        run = instance.get_run_by_id(result.run_id)
        event = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)[0].dagster_event
        assert run is not None and event is not None
        with dg.build_run_status_sensor_context(
            sensor_name="run_failures",
            dagster_instance=instance,
            dagster_run=run,
            dagster_event=event,
            resources={"state": StateFolder()},
        ) as context:
            requests = list(run_failures(context.for_run_failure()))
    [item] = stored(made.home, "first")
    assert (item.notice.kind, item.notice.window_key, item.notice.after) == ("run-failed", key, "input")
    assert [request.job_name for request in requests] == ["publish_notices"]
    assert "approval" not in item.path.read_text()


def test_the_notices_of_an_assessed_window_ask_for_their_publication_once(made: World) -> None:
    made.candidate.stop()
    key = made.approved_window()
    assert run_job(made, "shadow_window", key).success
    result = run_job(made, "assess_window", key)
    for expected in (1, 0):
        with instance_of(made.home) as instance:
            event = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.RUN_SUCCESS)[0].dagster_event
            run = instance.get_run_by_id(result.run_id)
            assert run is not None and event is not None
            with dg.build_run_status_sensor_context(
                sensor_name="verdict_notices",
                dagster_instance=instance,
                dagster_run=run,
                dagster_event=event,
                resources={"state": StateFolder()},
            ) as context:
                found = list(verdict_notices(context))
        assert len([item for item in found if isinstance(item, dg.RunRequest)]) == expected
    with instance_of(made.home) as instance:
        assert defs.resolve_job_def("publish_notices").execute_in_process(instance=instance).success
    from tasc_pipeline.warehouse.database import connect

    with connect(made.home.root) as session:
        assert session.execute("SELECT window_key, kind FROM notices").fetchall() == [(key, "coverage-low")]
    with dg.build_sensor_context(resources={"state": StateFolder()}) as context:
        assert [type(item) for item in overdue_windows(context)] == [dg.SkipReason]


def test_the_index_is_made_again_where_it_is_lost_damaged_or_old(made: World) -> None:
    key = made.approved_window()
    later = at(10)
    now_ns = int(later().timestamp() * 1e9)
    known = window_facts(made.home, now_ns=lambda: now_ns)
    assert (made.home.windows / INDEX).is_file() and known[key].approved
    for text in ("", "{}", '{"form": 0, "windows": []}', '{"form": 1, "windows": [[1]]}'):
        (made.home.windows / INDEX).write_text(text)
        assert window_facts(made.home) == known


def test_a_folder_that_changed_is_read_again(made: World) -> None:
    key = made.approved_window()
    now_ns = int(at(10)().timestamp() * 1e9)
    window_facts(made.home, now_ns=lambda: now_ns)
    (made.home.window(key) / "approval.json").unlink()
    assert window_facts(made.home)[key].approved is False


def test_the_newest_revision_of_a_window_is_current(made: World) -> None:
    key = made.approved_window()
    facts = window_facts(made.home)
    revised = facts[key]._replace(window_key="z" + key, revision=2)
    assert current_keys({**facts, revised.window_key: revised}) == {revised.window_key}


def test_every_sensor_has_an_interval_and_none_that_costs_money_is_on() -> None:
    found = {item.name: item for item in defs.get_repository_def().sensor_defs}
    assert all(
        (item.minimum_interval_seconds or 0) >= 15
        for item in found.values()
        if item.name != "default_automation_condition_sensor"
    )
    assert found["window_launcher"].default_status is dg.DefaultSensorStatus.STOPPED
    assert found["settlement"].default_status is dg.DefaultSensorStatus.RUNNING
