"""What the UI shows of a run that is refused: our message in the first line of the failed step, with the way out."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from tasc_pipeline.definitions import defs
from tasc_pipeline.instance import add_partition, instance_of
from tasc_pipeline.notice_sensors import category_of
from tests.support.window import World, with_instance, world

FAILURE = "dagster._core.definitions.events.Failure: "
"""What Dagster writes before the message of a failure."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("refusals")) as found, pytest.MonkeyPatch.context() as patch:
        with_instance(found.home)
        patch.setenv("TASC_HOME", str(found.home.root))
        yield found


def refused(made: World, job: str, key: str | None) -> tuple[str, str]:
    """First line of the failed step as the UI shows it, and the word that a notice says of the run."""
    with instance_of(made.home) as instance:
        result = defs.resolve_job_def(job).execute_in_process(
            instance=instance, partition_key=key, raise_on_error=False
        )
        [event] = [item for item in result.all_events if item.is_step_failure]
        error = event.step_failure_data.error
        assert error is not None
        assert error.cause is None, "the UI shows a cause below two stacks"
        context = dg.build_run_status_sensor_context(
            "run_failures",
            dagster_event=result.all_events[-1],
            dagster_instance=instance,
            dagster_run=result.dagster_run,
        ).for_run_failure()
        return error.message.splitlines()[0].removeprefix(FAILURE), category_of(context)


def test_a_run_without_a_partition_says_how_to_name_a_window(made: World) -> None:
    said = (
        "shadow_window: partition: this run names no window; nothing was sent -> choose one in the UI, or launch with "
        """--tags '{"dagster/partition":"KEY"}'; keys: tasc status"""
    )
    assert refused(made, "shadow_window", None) == (said, "input")


@pytest.mark.parametrize("job", ["shadow_window", "assess_window"])
def test_a_partition_that_was_added_by_hand_is_refused(made: World, job: str) -> None:
    key = "first.20260101t000000.r01-00000000"
    add_partition(made.home, key)
    said = f"{key}: no window with this key was sealed -> run: tasc status, or seal one: tasc seal STUDY"
    assert refused(made, job, key) == (said, "input")


def test_assessing_a_window_before_it_is_collected_names_the_command_that_collects(made: World) -> None:
    key = made.approved_window(lead_s=900)
    add_partition(made.home, key)
    said = f"{key}: nothing was collected yet -> run: tasc collect {key}"
    assert refused(made, "assess_window", key) == (said, "input")
    assert made.inference_calls == (0, 0)
