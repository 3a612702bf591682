"""Jobs over assets. Everything derives from the partition key, so UI, `dagster job launch`, backfill and sensors behave alike."""

from __future__ import annotations

import dagster as dg

from tasc_pipeline.assets.assessment import assessments, window_catalogue
from tasc_pipeline.assets.collection import capability_receipts, collection, run_plans, window_manifests

NO_RETRY = {"dagster/max_retries": "0", "dagster/retry_on_asset_or_op_failure": "false"}
"""A run that may have sent is finished by resuming it, never by an automatic retry."""

shadow_window = dg.define_asset_job(
    "shadow_window",
    selection=dg.AssetSelection.assets(capability_receipts, run_plans, *collection.keys, window_manifests),
    tags=NO_RETRY,
    description="Receipts, plan, collection and manifest of one sealed window.",
)
assess_window = dg.define_asset_job(
    "assess_window",
    selection=dg.AssetSelection.assets(assessments),
    tags=NO_RETRY,
    description="Assess one closed window and write its report. Sends nothing.",
)
refresh_catalogue = dg.define_asset_job(
    "refresh_catalogue",
    selection=dg.AssetSelection.assets(window_catalogue),
    description="Publish the table of windows. Sends nothing.",
)
JOBS = (shadow_window, assess_window, refresh_catalogue)
