"""The figures of a window that may warn, from its journal, scrapes, snapshots and receipts; ``control.window_quality`` judges."""

from __future__ import annotations

from itertools import groupby

from tasc_collector.limits import RECEIPT_HOURS
from tasc_pipeline.control import window_quality as quality
from tasc_pipeline.control.window_quality import Quality
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import load_approved, verify_receipts
from tasc_pipeline.steps.collected import read_collected
from tasc_pipeline.steps.conditions import conditions
from tasc_pipeline.steps.metrics import read_scrapes
from tasc_pipeline.steps.observing import observation
from tasc_pipeline.steps.sampling import read_device_snapshots


def of_traces(home: Home, window_key: str) -> list[Quality]:
    """Coverage, unknowns, token counts, clocks, and servers that gave no answer.

    Raises:
        InputError: a record is missing or does not match.
        JournalError: the journal cannot be trusted.
    """
    approved = load_approved(home, window_key)
    journal_key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    collected = read_collected(approved, home.run(approved.collected_as), journal_key)
    observations = [observation(item) for item in collected.executions]
    scrapes = sorted(read_scrapes(home, approved.collected_as, approved.ring), key=lambda scrape: scrape.endpoint_alias)
    in_order = [
        [scrape.scraped_at for scrape in group]
        for _, group in groupby(scrapes, key=lambda scrape: scrape.endpoint_alias)
    ]
    in_order.append([item.sampled_at for item in read_device_snapshots(home, approved.collected_as, approved.ring)])
    window = approved.collected_under
    planned = len(observations) + collected.pending
    known = sum(item.dispatch_state == "completed" for item in observations)
    return [
        quality.coverage(known / planned if planned else 0.0, approved.study.minimum_coverage),
        quality.unknown_rate(observations),
        quality.usage_null_rate(observations),
        quality.clock_skew(
            [
                item.envelope.attempts[0].observer_timings.started_at
                for item in collected.executions
                if item.envelope is not None
            ],
            in_order,
            start=window.event_time_start_inclusive,
            end=window.event_time_end_exclusive,
        ),
        quality.servers_answered(observations),
    ]


def of_devices(home: Home, window_key: str) -> Quality:
    """Throttling of the devices that tell."""
    found = conditions(home, load_approved(home, window_key))
    return quality.throttling(item.throttled_share for item in found.values())


def of_receipts(home: Home, window_key: str) -> Quality:
    """Age of the pinned receipts when the window began."""
    approved = load_approved(home, window_key)
    receipts = verify_receipts(home, approved.ring, approved.plan.record).every
    return quality.receipt_age(
        [receipt.observed_at for receipt in receipts],
        approved.collected_under.event_time_start_inclusive,
        limit_h=RECEIPT_HOURS,
    )
