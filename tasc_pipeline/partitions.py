"""One partition per sealed window. A window exists because somebody sealed it, not because the clock passed.

Keys are append-only and bound to content: they end in the first 8 hex digits of the declaration's digest, so that a key
typed into the UI cannot match a declaration that it does not name. A revision is a new key.
"""

from __future__ import annotations

import dagster as dg

PARTITIONS_NAME = "sealed_window"
PARTITION_TAG = "dagster/partition"
"""The tag by which UI, sensors, backfills and `job launch` say which window a run is of."""
sealed_windows = dg.DynamicPartitionsDefinition(name=PARTITIONS_NAME)
one_window_per_run = dg.BackfillPolicy.multi_run(1)
