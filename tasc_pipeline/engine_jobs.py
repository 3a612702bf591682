"""Jobs around engines of this host: launch one, stop one, or collect a window between launch and stop.

An engine outlives the run that launched it, on purpose: its record is the lease. Only ``engine_window`` stops what it
started, always; where receipts and plan are made in between, it needs a standing authorization. No log tail enters
metadata, events or messages, because engines may log what users wrote.
"""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError, TascError
from tasc_compute.local import Launched
from tasc_pipeline.clock import utc_now
from tasc_pipeline.failures import failure_of
from tasc_pipeline.home import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.jobs import NO_RETRY
from tasc_pipeline.partitions import PARTITIONS_NAME
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import engines
from tasc_pipeline.steps.approved import load_approved, load_receipts
from tasc_pipeline.steps.engine_window import check_engine_window, prepare_engine_window


class LaunchConfig(dg.Config):
    """Which engine is launched.

    Args:
        recipe: path of a recipe file; relative to the state folder.
    """

    recipe: str


class StopConfig(dg.Config):
    """Which engine is stopped.

    Args:
        instance: its name.
    """

    instance: str


class WindowConfig(dg.Config):
    """Engines and the window that is collected while they run: one that was approved before, or a new one of a study.

    Args:
        recipes: paths of recipe files; relative to the state folder.
        window_key: key of a sealed window whose plan is approved.
        study: id of a study whose window is made between launch and stop, under its standing authorization.
    """

    recipes: list[str]
    window_key: str = ""
    study: str = ""


@dg.op(description="Launch a recipe's engine on this host and wait until it is ready. It stays when the run ends.")
def launch(context: dg.OpExecutionContext, config: LaunchConfig, state: StateFolder) -> None:
    """Launch and leave running."""
    home = state.home()
    try:
        [recipe] = engines.read_recipes(home, [config.recipe])
        with engines.cancel_on_signal() as cancel:
            launched = engines.launch_engine(home, recipe, cancel)
    except KeyboardInterrupt:
        raise dg.DagsterExecutionInterruptedError from None
    except TascError as error:
        raise failure_of(error) from None
    _say(context, launched)


@dg.op(description="Stop an engine of this host and give its devices and port back.")
def stop(context: dg.OpExecutionContext, config: StopConfig, state: StateFolder) -> None:
    """Stop by the ladder; fails where the end cannot be proved."""
    try:
        outcome = engines.stop_engine(state.home(), config.instance)
    except TascError as error:
        raise failure_of(error) from None
    context.log.info(f"{config.instance}: {engines.STOP_TEXT[outcome]}")


@dg.op(
    description="Launch the recipes, collect one window as a run of shadow_window, stop what was launched. Always stops. "
    "A new window's receipts and plan are made in between, under the study's standing authorization."
)
def collect_between_launch_and_stop(context: dg.OpExecutionContext, config: WindowConfig, state: StateFolder) -> None:
    """What can be refused is refused before the first engine starts; nothing is sent to another configuration."""
    home = state.home()
    try:
        window = _approved_window(home, config) if config.window_key else _new_window(context, home, config)
        with engines.engines_running(home, engines.read_recipes(home, config.recipes)) as launched:
            for item in launched:
                _say(context, item)
            engines.check_configurations(window.study, launched)
            _collect(context, window.key())
    except KeyboardInterrupt:
        raise dg.DagsterExecutionInterruptedError from None
    except TascError as error:
        raise failure_of(error) from None


@dataclass(frozen=True, slots=True)
class _Window:
    """The window that is meant: its study, and what gives its key once the engines are ready."""

    study: LoadedStudy
    key: Callable[[], str]


def _approved_window(home: Home, config: WindowConfig) -> _Window:
    """A window whose plan and receipts were made before; both are verified here."""
    if config.study:
        raise InputError(
            "a window's key and a study are named", where="config", field="study", way_out="leave one of them out"
        )
    approved = load_approved(home, config.window_key)
    load_receipts(home, config.window_key)
    return _Window(approved.study, lambda: config.window_key)


def _new_window(context: dg.OpExecutionContext, home: Home, config: WindowConfig) -> _Window:
    """A window that is made when the engines are ready: fresh canary receipts, declaration, plan.

    Raises:
        NotAuthorized: no standing authorization allows the window and the canaries that it needs.
    """
    study = load_study(home, config.study)
    check_engine_window(home, study, format_timestamp(utc_now()))

    def make() -> str:
        made = prepare_engine_window(
            home,
            study,
            context.run_id,
            utc_now,
            add_partition=lambda key: context.instance.add_dynamic_partitions(PARTITIONS_NAME, [key]),
        )
        context.log.info(f"{made.window_key}: prepared under {made.authorization_id}")
        return made.window_key

    return _Window(study, make)


def _collect(context: dg.OpExecutionContext, window_key: str) -> None:
    """Run ``shadow_window`` of the partition here, as a run of its own with its own checks."""
    from tasc_pipeline.definitions import defs

    context.instance.add_dynamic_partitions(PARTITIONS_NAME, [window_key])
    result = defs.resolve_job_def("shadow_window").execute_in_process(
        partition_key=window_key, instance=context.instance, raise_on_error=False
    )
    if any(_was_interrupted(event) for event in result.all_events):
        raise dg.DagsterExecutionInterruptedError
    context.log.info(f"window {window_key}: run {result.run_id} {'succeeded' if result.success else 'failed'}")
    if not result.success:
        raise TascError(
            "the window's run failed; the engines are stopped",
            where=window_key,
            way_out=f"see run {result.run_id}; then start this job again, which finishes the window",
        )


def _was_interrupted(event: dg.DagsterEvent) -> bool:
    """Whether a step ended because this process was told to stop; the inner run itself was not asked to, so it failed."""
    error = event.step_failure_data.error if event.is_step_failure else None
    return error is not None and error.cls_name == dg.DagsterExecutionInterruptedError.__name__


def _say(context: dg.OpExecutionContext, launched: Launched) -> None:
    context.log.info(f"{launched.record.name} is ready, configuration {launched.configuration_digest}")
    for item in launched.dropped:
        context.log.info(f"left out: {item.knob.value}: {item.reason}")


@dg.job(tags=NO_RETRY, description="Launch one engine on this host; config: recipe.")
def launch_engine() -> None:
    """One engine."""
    launch()


@dg.job(tags=NO_RETRY, description="Stop one engine of this host; config: instance.")
def stop_engine() -> None:
    """One engine."""
    stop()


@dg.job(
    tags=NO_RETRY,
    description="Launch engines, collect one window, stop the engines; config: recipes, and window_key or study.",
)
def engine_window() -> None:
    """One window."""
    collect_between_launch_and_stop()


ENGINE_JOBS = (launch_engine, stop_engine, engine_window)
"""By hand only: nothing requests them."""
