"""Server metrics of a window: scraped around and inside it, signed in batches, kept beside the window's records.

``scrapes.ndjson`` in the window's folder has one ``tasc-metrics-scrape-v1`` per line, in the order in which they were made,
and after each few of them a ``tasc-metrics-scrape-batch-v1`` that signs their bytes. Rules:

1. Lines that no batch covers were written by a run that ended before it signed; they are left out.
2. A line of an earlier version, with a signature of its own, is read and verified as before.
3. The scrapes decide nothing: they are what a reader compares the window's latencies with. A run that sent nothing leaves
   none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, TypeVar

from pydantic import ValidationError

from tasc_collector.canonical import digest
from tasc_collector.contracts.base import input_error
from tasc_collector.contracts.observations import MetricsScrape, MetricsScrapeBatch, ScrapeEntry
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.scalars import timestamp_of_ms
from tasc_collector.contracts.signed import SignedRecord
from tasc_collector.errors import DigestMismatch, InputError, JournalLocked
from tasc_collector.journal import OsFileSystem, held_by
from tasc_collector.limits import RECORD_MAX_BYTES, SCRAPE_EVERY_S
from tasc_collector.probes.sampler import Sampler, Scrape
from tasc_collector.transport.clock import SystemClock
from tasc_collector.wire.records import read_lines, read_record
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.lines import AppendedLines
from tasc_pipeline.home.signers import Signer
from tasc_pipeline.steps.approved import ApprovedPlan
from tasc_pipeline.steps.subjects import subject_of

SCRAPES: Final = "scrapes.ndjson"
SCRAPES_PER_BATCH: Final = 64
"""About a minute of two servers: a run that is killed loses no more than these."""
_BATCH: Final = b'"version":"tasc-metrics-scrape-batch-v1"'
_OWN_SIGNATURE: Final = b'"signature":'
_WAY_OUT: Final = "restore the file"

S = TypeVar("S", bound=SignedRecord)


@contextmanager
def sampling(home: Home, approved: ApprovedPlan, *, every_s: float = SCRAPE_EVERY_S) -> Iterator[AppendedLines]:
    """Scrape every server of a plan that has passive metrics, while the block runs.

    Args:
        home: the state folder.
        approved: the approved plan.
        every_s: seconds between two rounds.

    Raises:
        JournalLocked: another run of this window is at it; the message says who. Nothing was asked, nothing written.
    """
    study, plan = approved.study, approved.plan.record
    subjects = {
        approved.study.endpoints[target.profile_id].alias: subject_of(home, study, target.profile_id)
        for target in plan.targets
    }
    clock = SystemClock()
    signer = signers.collector(home, approved.ring, study.study, timestamp_of_ms(clock.wall_ns() // 1_000_000))
    with ExitStack() as stack:
        try:
            lines = stack.enter_context(AppendedLines(home.window(plan.window_key) / SCRAPES))
        except BlockingIOError:
            raise _at_it(home, plan.window_key) from None
        batch = ScrapeBatch(lines, plan.window_key, signer, lambda: timestamp_of_ms(clock.wall_ns() // 1_000_000))
        try:
            with Sampler(tuple(subjects.values()), batch.take, every_s=every_s, clock=clock):
                yield lines
        finally:
            batch.sign()


def _at_it(home: Home, window_key: str) -> JournalLocked:
    folder = home.run(window_key)
    holder = held_by(OsFileSystem(), folder) if folder.is_dir() else None
    return JournalLocked(
        f"the window is in use by {holder or 'another run'}",
        where=window_key,
        way_out="wait until that process ends, or stop it; its lock ends with it",
    )


class ScrapeBatch:
    """Appends scrapes, and a signed batch after every ``SCRAPES_PER_BATCH`` of them and at the end.

    Args:
        lines: where they are appended.
        window_key: the window.
        signer: the collector key.
        now: the instant, for the batch.
    """

    def __init__(self, lines: AppendedLines, window_key: str, signer: Signer, now: Callable[[], str]) -> None:
        self._lines, self._window_key, self._signer, self._now = lines, window_key, signer, now
        self._content = hashlib.sha256()
        self._held = 0

    def take(self, scrape: Scrape) -> None:
        """Append one scrape."""
        self.append(entry_of(scrape, self._window_key))

    def append(self, entry: ScrapeEntry) -> None:
        """Append one scrape's record."""
        line = entry.model_dump_json(by_alias=True).encode()
        self._lines.write(line)
        self._content.update(line + b"\n")
        self._held += 1
        if self._held == SCRAPES_PER_BATCH:
            self.sign()

    def sign(self) -> None:
        """Append the batch of what came since the last one, if anything did."""
        if not self._held:
            return
        batch = MetricsScrapeBatch.sign_with(
            self._signer.key,
            self._signer.key_id,
            window_key=self._window_key,
            lines=self._held,
            content_digest=f"sha256:{self._content.hexdigest()}",
            signed_at=self._now(),
        )
        self._lines.write(batch.canonical())
        self._content, self._held = hashlib.sha256(), 0


def entry_of(scrape: Scrape, window_key: str | None) -> ScrapeEntry:
    """The record of one scrape."""
    reading, instance = scrape.reading, scrape.subject.instance
    return ScrapeEntry(
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


def read_scrapes(home: Home, window_key: str, ring: KeyRing) -> tuple[ScrapeEntry, ...]:
    """The window's scrapes, each under a verified signature; none where none were made.

    Raises:
        InputError: a line is neither a scrape nor a batch, or belongs to another window.
        DigestMismatch: lines are not those that their batch signed.
        SignatureError: no collector key of the ring signed it.
    """
    lines = scrape_lines(home, window_key, ring)
    try:
        return tuple(ScrapeEntry.model_validate_json(line, by_alias=True, by_name=False) for line in lines)
    except ValidationError as error:
        raise input_error(error, where=SCRAPES) from None


def scrape_lines(home: Home, window_key: str, ring: KeyRing) -> list[bytes]:
    """The verified bytes of the window's scrapes, without signatures; for who reads them by columns.

    Raises:
        InputError, DigestMismatch, SignatureError: as ``read_scrapes``.
    """
    return [line for _, lines in _signed(home, window_key, ring) for line in lines]


def scrapes_digest(home: Home, window_key: str, ring: KeyRing) -> str | None:
    """Digest over the window's scrapes in their order, as its link binds them; None where there are none.

    Raises:
        InputError, DigestMismatch, SignatureError: as ``read_scrapes``.
    """
    found = [name for name, _ in _signed(home, window_key, ring)]
    return digest("tasc/metrics-scrape-list/v1", found) if found else None


def _signed(home: Home, window_key: str, ring: KeyRing) -> Iterator[tuple[str, list[bytes]]]:
    """Digest of every verified batch, or scrape of an earlier version, and the lines that it signed."""
    path = home.window(window_key) / SCRAPES
    if not path.is_file():
        return
    waiting: list[bytes] = []
    for number, line in enumerate(read_lines(path, RECORD_MAX_BYTES), start=1):
        where = f"{path.name} line {number}"
        if _BATCH in line:
            batch = _verified(MetricsScrapeBatch, line, ring, lambda record: record.signed_at, where)
            covered, waiting = waiting[-batch.lines :], []
            _check(batch, covered, window_key, where)
            yield batch.digest, covered
        elif _OWN_SIGNATURE in line:
            scrape = _verified(MetricsScrape, line, ring, lambda record: record.scraped_at, where)
            yield scrape.digest, [scrape.model_dump_json(by_alias=True, exclude={"signature"}).encode()]
        else:
            waiting.append(line)


def _check(batch: MetricsScrapeBatch, covered: list[bytes], window_key: str, where: str) -> None:
    content = hashlib.sha256(b"".join(line + b"\n" for line in covered)).hexdigest()
    if (len(covered), f"sha256:{content}") != (batch.lines, batch.content_digest):
        raise DigestMismatch(
            "the lines before are not those that this batch signed",
            where=where,
            field="contentDigest",
            way_out=_WAY_OUT,
        )
    if batch.window_key != window_key:
        raise InputError("the batch belongs to another window", where=where, field="windowKey", way_out=_WAY_OUT)


def _verified(cls: type[S], line: bytes, ring: KeyRing, signed_at: Callable[[S], str], where: str) -> S:
    parsed = read_record(cls, line, where=where)
    record = parsed.record
    key = keys.public_key(ring, record.signature.authority_key_id, ("collector",), signed_at(record), where=where)
    cls.check_signature(parsed, key, where=where)
    return record
