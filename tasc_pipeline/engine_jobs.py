"""Jobs around engines of this host: launch one, stop one, or collect a window between launch and stop.

An engine outlives the run that launched it, on purpose: its record is the lease. Only ``engine_window`` stops what it
started, always. No log tail enters metadata, events or messages, because engines may log what users wrote.
"""

import dagster as dg

from tasc_collector.errors import TascError
from tasc_compute.local import Launched
from tasc_pipeline.jobs import NO_RETRY
from tasc_pipeline.partitions import PARTITIONS_NAME
from tasc_pipeline.probe_jobs import failure_of
from tasc_pipeline.resources import StateFolder
from tasc_pipeline.steps import engines, plan


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
    """Engines and the window that is collected while they run.

    Args:
        recipes: paths of recipe files; relative to the state folder.
        window_key: key of a sealed window whose plan is approved.
    """

    recipes: list[str]
    window_key: str


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
    description="Launch the recipes, collect one window as a run of shadow_window, stop what was launched. Always stops."
)
def collect_between_launch_and_stop(context: dg.OpExecutionContext, config: WindowConfig, state: StateFolder) -> None:
    """Plan and receipts are verified before the first engine starts, and nothing is collected on another configuration."""
    home, key = state.home(), config.window_key
    try:
        approved = plan.load_approved(home, key)
        plan.load_receipts(home, key)
        with engines.engines_running(home, engines.read_recipes(home, config.recipes)) as launched:
            for item in launched:
                _say(context, item)
            engines.check_configurations(approved, launched)
            _collect(context, key)
    except KeyboardInterrupt:
        raise dg.DagsterExecutionInterruptedError from None
    except TascError as error:
        raise failure_of(error) from None


def _collect(context: dg.OpExecutionContext, window_key: str) -> None:
    """Run ``shadow_window`` of the partition here, as a run of its own with its own checks."""
    from tasc_pipeline.definitions import defs

    context.instance.add_dynamic_partitions(PARTITIONS_NAME, [window_key])
    result = defs.resolve_job_def("shadow_window").execute_in_process(
        partition_key=window_key, instance=context.instance, raise_on_error=False
    )
    run = context.instance.get_run_by_id(result.run_id)
    if run is not None and run.status is dg.DagsterRunStatus.CANCELED:
        raise dg.DagsterExecutionInterruptedError
    context.log.info(f"window {window_key}: run {result.run_id} {'succeeded' if result.success else 'failed'}")
    if not result.success:
        raise TascError(
            "the window's run failed; the engines are stopped",
            where=window_key,
            way_out=f"see run {result.run_id}; then start this job again, which finishes the window",
        )


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
    description="Launch engines, collect one approved window, stop the engines; config: recipes, window_key.",
)
def engine_window() -> None:
    """One window."""
    collect_between_launch_and_stop()


ENGINE_JOBS = (launch_engine, stop_engine, engine_window)
"""By hand only: nothing requests them."""
