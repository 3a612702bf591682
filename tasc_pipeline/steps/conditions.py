"""What servers and devices did while a window was open, for the fairness strip: read from signed scrapes and snapshots.
Whether a server was reached over loopback is read from the plan.

Snapshots are of the collecting host. They say something of a server that was reached over its loopback, and there all
devices of the host stand for it, because nothing that is sealed ties a device to a server; of any other server nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from tasc_collector.contracts.collection import PlanTarget
from tasc_collector.contracts.observations import DeviceSnapshotRecord, ScrapeEntry
from tasc_pipeline.control.fairness import Conditions
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import ApprovedPlan, key_ring
from tasc_pipeline.steps.metrics import read_scrapes
from tasc_pipeline.steps.sampling import read_device_snapshots

RUNNING, WAITING = "requests-running", "requests-waiting"


def conditions(home: Home, approved: ApprovedPlan) -> dict[str, Conditions]:
    """Mean requests running and waiting at each profile's server over the scrapes inside the window, by profile.

    A server that reports none of it has null, and so has one whose devices this host does not see.

    Raises:
        InputError: a line of the window's scrapes or snapshots is none.
        SignatureError: no collector key signed it.
    """
    plan = approved.plan.record
    scrapes = read_scrapes(home, approved.collected_as, key_ring(home))
    throttled = throttled_share(read_device_snapshots(home, approved.collected_as, approved.ring))
    return {
        target.profile_id: replace(
            load_of(scrapes, approved.study.endpoints[target.profile_id].alias),
            throttled_share=throttled if over_loopback(target) else None,
            loopback=over_loopback(target),
        )
        for target in plan.targets
    }


def over_loopback(target: PlanTarget) -> bool:
    """Whether a target's server is reached over a loopback port: a server of this host, or a forward to another."""
    return target.transport == "loopback-http"


def throttled_share(records: Sequence[DeviceSnapshotRecord]) -> float | None:
    """Share of the device samples in which a device was throttled, the processor among them; null where none tells.

    A device tells it in every snapshot. The processor's is a count since its start, so it was throttled between two
    snapshots where the count has grown. Snapshots just before and after the calls close the intervals.
    """
    told: list[bool] = []
    for record in records:
        if record.phase == "during":
            told += [item["throttled"] for item in record.snapshot["accelerators"] if item.get("throttled") is not None]
    counts = [record.snapshot["host"].get("cpuThrottleCount") for record in records]
    told += [later > earlier for earlier, later in pairwise(counts) if earlier is not None and later is not None]
    return fmean(told) if told else None


def load_of(scrapes: Iterable[ScrapeEntry], alias: str) -> Conditions:
    """Means over the scrapes that were made inside the window at the server with this alias."""
    inside = [scrape for scrape in scrapes if scrape.endpoint_alias == alias and scrape.phase == "during"]
    return Conditions(running=_mean(inside, RUNNING), waiting=_mean(inside, WAITING))


def _mean(scrapes: Iterable[ScrapeEntry], metric: str) -> float | None:
    values = [
        item.value
        for scrape in scrapes
        for item in scrape.values
        if item.metric == metric and not item.labels and item.value is not None
    ]
    return fmean(values) if values else None
