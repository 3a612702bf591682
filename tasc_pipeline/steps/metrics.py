"""Server metrics of a window: scraped around and inside it, signed one by one, kept beside the window's records.

``scrapes.ndjson`` in the window's folder has one signed ``tasc-metrics-scrape-v1`` per line, in the order in which they
were made (``home.lines``). The scrapes decide nothing: they are what a reader compares the window's latencies with. A
run that sent nothing leaves none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.observations import MetricsScrape
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.limits import SCRAPE_EVERY_S
from tasc_collector.probes.sampler import Sampler, Scrape
from tasc_collector.signing import SigningKey
from tasc_collector.transport.clock import SystemClock
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.lines import AppendedLines, read_signed_lines
from tasc_pipeline.steps.plan import ApprovedPlan
from tasc_pipeline.steps.subjects import subject_of

SCRAPES = "scrapes.ndjson"


@contextmanager
def sampling(home: Home, approved: ApprovedPlan, *, every_s: float = SCRAPE_EVERY_S) -> Iterator[AppendedLines]:
    """Scrape every server of a plan that has passive metrics, while the block runs.

    Args:
        home: the state folder.
        approved: the approved plan.
        every_s: seconds between two rounds.
    """
    study, plan = approved.study, approved.plan.record
    subjects = {
        approved.study.endpoints[target.profile_id].alias: subject_of(home, study, target.profile_id)
        for target in plan.targets
    }
    key = keys.signing_key(home, study.study.keys.collector_signing)
    key_id = study.rules.collector_authority.key_id
    with AppendedLines(home.window(plan.window_key) / SCRAPES) as lines:

        def take(scrape: Scrape) -> None:
            lines.write(canonical_bytes(sign(scrape, plan.window_key, key, key_id).to_json()))

        with Sampler(tuple(subjects.values()), take, every_s=every_s, clock=SystemClock()):
            yield lines


def sign(scrape: Scrape, window_key: str | None, key: SigningKey, key_id: str) -> MetricsScrape:
    """The signed record of one scrape."""
    reading, instance = scrape.reading, scrape.subject.instance
    return MetricsScrape.sign_with(
        key,
        key_id,
        window_key=window_key,
        endpoint_alias=scrape.subject.alias,
        endpoint_binding_digest=instance.endpoint_descriptor_digest,
        phase=scrape.phase,
        scraped_at=timestamp_of_ms(scrape.wall_ns // 1_000_000),
        took_ns=scrape.took_ns,
        values=reading.values,
        histograms=reading.histograms,
        ignored_samples=reading.ignored_samples,
        non_finite_samples=reading.non_finite_samples,
    )


def read_scrapes(home: Home, window_key: str, ring: KeyRing) -> tuple[MetricsScrape, ...]:
    """The window's scrapes, each verified; none where none were made.

    Raises:
        InputError: a line is not a scrape.
        SignatureError: no collector key of the ring signed it.
    """
    path = home.window(window_key) / SCRAPES
    return tuple(read_signed_lines(MetricsScrape, path, ring, "collector", lambda record: record.scraped_at))
