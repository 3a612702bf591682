"""What the servers said of their load while a window was open, for the fairness strip: read from the signed scrapes."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from tasc_collector.contracts.observations import MetricsScrape
from tasc_pipeline.control.fairness import Conditions
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.metrics import read_scrapes
from tasc_pipeline.steps.plan import ApprovedPlan, key_ring

RUNNING, WAITING = "requests-running", "requests-waiting"


def conditions(home: Home, approved: ApprovedPlan) -> dict[str, Conditions]:
    """Mean requests running and waiting at each profile's server over the scrapes inside the window, by profile.

    A server that reports none of it has null. Device throttling is null everywhere: a snapshot does not tie a device to
    a server.

    Raises:
        InputError: a line of the window's scrapes is not a scrape.
        SignatureError: no collector key signed it.
    """
    plan = approved.plan.record
    scrapes = read_scrapes(home, plan.window_key, key_ring(home))
    return {
        target.profile_id: load_of(scrapes, approved.study.endpoints[target.profile_id].alias)
        for target in plan.targets
    }


def load_of(scrapes: Iterable[MetricsScrape], alias: str) -> Conditions:
    """Means over the scrapes that were made inside the window at the server with this alias."""
    inside = [scrape for scrape in scrapes if scrape.endpoint_alias == alias and scrape.phase == "during"]
    return Conditions(running=_mean(inside, RUNNING), waiting=_mean(inside, WAITING))


def _mean(scrapes: Iterable[MetricsScrape], metric: str) -> float | None:
    values = [
        item.value
        for scrape in scrapes
        for item in scrape.values
        if item.metric == metric and not item.labels and item.value is not None
    ]
    return fmean(values) if values else None
