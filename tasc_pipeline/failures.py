"""How a refusal looks in Dagster: our own message in the first line of the failed step, and two words beside it.

Left alone, an error of ours is shown as "Error occurred while executing op" with the message far below, under Dagster's
stack. Errors that are not ours keep their stack: they are defects, and somebody will look for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from tasc_collector.errors import InputError, TascError
from tasc_pipeline.partitions import PARTITION_TAG
from tasc_pipeline.steps.notices import FAILURES, UNEXPECTED

REASON = "reason"
"""Entry of a failure's metadata: what a notice says of the run."""


def failure_of(error: TascError) -> dg.Failure:
    """A refusal as Dagster's failure: our message, never retried."""
    return dg.Failure(
        str(error),
        metadata={"category": error.category.value, REASON: FAILURES.get(type(error).__name__, UNEXPECTED)},
        allow_retries=False,
    )


@contextmanager
def in_words() -> Iterator[None]:
    """One of our errors in this block fails the step with its message.

    Raises:
        dagster.Failure: an error of ours was raised.
    """
    try:
        yield
    except TascError as error:
        raise failure_of(error) from None


def window_of(context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext) -> str:
    """The window that a run is of.

    Raises:
        InputError: the run was launched without a partition.
    """
    run = context.op_execution_context
    if not run.has_partition_key:
        raise InputError(
            "this run names no window; nothing was sent",
            where=context.run.job_name,
            field="partition",
            way_out=f'choose one in the UI, or launch with --tags \'{{"{PARTITION_TAG}":"KEY"}}\'; keys: tasc status',
        )
    return run.partition_key
