"""Jobs over assets. Everything derives from the partition key, so UI, `dagster job launch`, backfill and sensors behave alike."""

from __future__ import annotations

import dagster as dg

from tasc_pipeline.assets.assessment import assessments, window_catalogue
from tasc_pipeline.assets.collection import SETTLE_JOB, capability_receipts, collection, run_plans, window_manifests
from tasc_pipeline.assets.evidence import evaluator_evidence

NO_RETRY = {"dagster/max_retries": "0", "dagster/retry_on_asset_or_op_failure": "false"}
"""A run that may have sent is finished by resuming it, never by an automatic retry."""
_WINDOW = dg.AssetSelection.assets(capability_receipts, run_plans, *collection.keys, window_manifests)

shadow_window = dg.define_asset_job(
    "shadow_window",
    selection=_WINDOW,
    tags=NO_RETRY,
    description="Receipts, plan, collection and manifest of one sealed window.",
)
settle_window = dg.define_asset_job(
    SETTLE_JOB,
    selection=_WINDOW,
    tags={**NO_RETRY, "tasc/effect": "none"},
    description="Give every lease without an outcome its state (sent_unknown), publish and close the window. Sends nothing.",
)
assess_window = dg.define_asset_job(
    "assess_window",
    selection=dg.AssetSelection.assets(evaluator_evidence, assessments),
    tags=NO_RETRY,
    description="Check one closed window's evidence, assess it and write its report. Sends nothing.",
)
refresh_catalogue = dg.define_asset_job(
    "refresh_catalogue",
    selection=dg.AssetSelection.assets(window_catalogue),
    description="Publish the table of windows. Sends nothing.",
)
JOBS = (shadow_window, settle_window, assess_window, refresh_catalogue)
