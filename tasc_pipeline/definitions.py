"""The one Dagster entry: ``defs``, code location ``tasc``."""

from __future__ import annotations

import warnings

import dagster as dg

with warnings.catch_warnings():
    # partitioned checks and backfill policies are used on purpose (docs/decisions/0005); a user need not read of it at every start
    warnings.simplefilter("ignore", dg.BetaWarning)
    warnings.simplefilter("ignore", dg.PreviewWarning)
    from tasc_pipeline.assets import assessment, collection, endpoints, evidence
    from tasc_pipeline.checks import CHECKS
    from tasc_pipeline.engine_jobs import ENGINE_JOBS
    from tasc_pipeline.engine_sensor import ENGINE_SENSORS, engine_instances
    from tasc_pipeline.jobs import JOBS
    from tasc_pipeline.notice_sensors import NOTICE_JOBS, NOTICE_SENSORS
    from tasc_pipeline.prepare_jobs import PREPARE_JOBS, PREPARE_SCHEDULES
    from tasc_pipeline.probe_jobs import PROBE_JOBS
    from tasc_pipeline.probe_requests import PROBE_SCHEDULES, PROBE_SENSORS
    from tasc_pipeline.resources import StateFolder
    from tasc_pipeline.sensors import SENSORS

    assets = dg.with_source_code_references(dg.load_assets_from_modules([collection, evidence, assessment, endpoints]))

defs = dg.Definitions(
    assets=[*assets, engine_instances],
    asset_checks=CHECKS,
    jobs=[*JOBS, *PROBE_JOBS, *ENGINE_JOBS, *NOTICE_JOBS, *PREPARE_JOBS],
    schedules=[*PROBE_SCHEDULES, *PREPARE_SCHEDULES],
    sensors=[*SENSORS, *PROBE_SENSORS, *ENGINE_SENSORS, *NOTICE_SENSORS],
    resources={"state": StateFolder()},
    executor=dg.in_process_executor,
)
