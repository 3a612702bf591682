"""A window's evaluator evidence as of an instant: what was taken in, checked by the operator's snapshot.

What is stored about a window's traces is checked anew for every assessment: revocation, freshness and authorization
depend on the instant. Signatures do not, and their check is remembered (``tasc_pipeline.home.evidence``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_trust import EvidenceChecker, EvidenceReceipt, Verified
from tasc_collector.contracts.sets import evaluator_set_digest
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.errors import InputError
from tasc_pipeline.control.identifiers import texts
from tasc_pipeline.control.joined_rows import STATUSES, Evidence
from tasc_pipeline.control.record_columns import EvidenceBlocks
from tasc_pipeline.control.stored import StoredReceipts, Text
from tasc_pipeline.control.trace_checks import ProtocolTerms
from tasc_pipeline.home import evidence as storage
from tasc_pipeline.home import keys
from tasc_pipeline.home.evidence import StoredEvidence
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy
from tasc_pipeline.steps.approved import ApprovedPlan, load_approved
from tasc_pipeline.steps.collected import read_collected
from tasc_pipeline.steps.spool import Span, Spans, Spool
from tasc_pipeline.steps.watch import counted

_BLOCK: Final = 2_000
"""Pieces of evidence that are checked at a time."""


@dataclass(frozen=True, slots=True)
class CheckedEvidence:
    """A window's evidence, checked as of an instant.

    Args:
        receipts: in order of their digests, each made when it is asked for.
        columns: the same as columns.
        context: what it was checked under.
        snapshot: the operator's trust.
        later: pieces that were produced too late to be among them.
    """

    receipts: StoredReceipts
    columns: Evidence
    context: AssessmentContext
    snapshot: EvaluatorTrustSnapshot
    later: int

    @property
    def evaluator_set_digest(self) -> str:
        """Digest of the set, as the window's manifest carries it."""
        return evaluator_set_digest(f"sha256:{text}" for text in texts(self.columns.source_digest))


class SpooledReceipts(StoredReceipts):
    """Checked evidence as bytes; what the check found of each stands in its columns.

    Args:
        spool: where the bytes lie.
        spans: of each piece.
        columns: of the same pieces.
        context: what they were checked under.
    """

    def __init__(self, spool: Spool, spans: Spans, columns: Evidence, context: AssessmentContext) -> None:
        self._spool, self._spans, self._columns, self._context = spool, spans, columns, context

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: Any) -> Any:  # Any: an index gives a receipt, a slice a list of them
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        return EvidenceReceipt(
            EvaluatorEvidence.read_own(self._spool.get(Span(*self._spans[index].tolist())), where="evidence"),
            f"sha256:{texts(self._columns.digest[[index]])[0]}",
            STATUSES[self._columns.status[index]],
            self._context,
        )

    def canonical(self, places: Sequence[int]) -> Sequence[Text]:
        """The canonical bytes of the evidence at these places."""
        return self._spool.get_many(self._spans[places])


def trust_snapshot(loaded: LoadedStudy) -> EvaluatorTrustSnapshot:
    """The operator's trust in evaluator keys.

    Raises:
        InputError: the study names none.
    """
    if loaded.evaluator_trust is None:
        raise InputError(
            "the study names no evaluator trust snapshot",
            where=str(loaded.folder / "study.toml"),
            field="evaluator_trust",
            rule="the operator says which evaluator keys count, for what and how long",
            way_out="write trust-snapshot.json into the study's folder and name it in study.toml",
        )
    return loaded.evaluator_trust.record


def context_of(snapshot: EvaluatorTrustSnapshot, as_of: str) -> AssessmentContext:
    """The assessment context of a snapshot at an instant."""
    return AssessmentContext.issue(
        as_of=as_of,
        operator_trust_policy_snapshot_digest=snapshot.digest,
        evaluator_revocation_snapshot_digest=snapshot.revocations_digest,
    )


def window_evidence(home: Home, window_key: str) -> list[StoredEvidence]:
    """Everything that was taken in about a window's traces, in order of digests; of a revision, about revision 1's.

    Raises:
        InputError: the window is not approved, or a stored file is not what was taken in.
    """
    approved = load_approved(home, window_key)
    trace_ids = {trace.record.trace_id for trace in envelopes(home, approved)}
    batches = [
        batch
        for batch in storage.batches(home, approved.study.study.study_id, approved.ring)
        if approved.collected_as in batch.window_keys
    ]
    tell = counted("reading evidence, batches", len(batches))
    found: dict[str, StoredEvidence] = {}
    for batch in batches:
        found |= {item.digest: item for item in storage.read(home, batch) if item.parsed.record.trace_id in trace_ids}
        tell(1)
    return [found[name] for name in sorted(found)]


def check_window_evidence(home: Home, window_key: str, as_of: str, *, until: str | None = None) -> CheckedEvidence:
    """A window's evidence that was produced until an instant, checked as of it.

    Args:
        home: the state folder.
        window_key: the window.
        as_of: the assessment's instant; a decision's default is its watermark.
        until: leave out what was produced later, such as after the watermark: it belongs to a revision.

    Raises:
        InputError: no decision study, no trust snapshot, or a stored file is not what was taken in.
    """
    approved = load_approved(home, window_key)
    snapshot = trust_snapshot(approved.study)
    context = context_of(snapshot, as_of)
    last = min(as_of, until or as_of)
    every = window_evidence(home, window_key)
    stored = [item for item in every if item.parsed.record.produced_at <= last]
    checker = EvidenceChecker(snapshot, context, verified=remembered(stored))
    assert approved.study.protocol is not None  # noqa: S101 - a study with a trust snapshot is a decision
    blocks, tell = EvidenceBlocks(ProtocolTerms.of(approved.study.protocol)), counted("checking evidence", len(stored))
    for start in range(0, len(stored), _BLOCK):
        receipts = []
        for item in stored[start : start + _BLOCK]:
            receipts.append(checker.check(item.parsed))
            tell(1)
        blocks.add(receipts)
    columns, spool = blocks.done(), Spool(home.run(window_key))
    spans = np.zeros((len(stored), 2), dtype=np.int64)
    for place in np.lexsort((columns.profile_id, columns.replicate_id, columns.case_id)).tolist():
        spans[place] = spool.put(
            canonical_bytes(stored[place].parsed.value)
        )  # in the order in which a table holds them
    receipts_of = SpooledReceipts(spool, spans, columns, context)
    return CheckedEvidence(receipts_of, columns, context, snapshot, len(every) - len(stored))


def envelopes(home: Home, approved: ApprovedPlan) -> list[Parsed[TraceEnvelope]]:
    """The accepted envelopes of a window as its journal holds them."""
    journal_key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    collected = read_collected(approved, home.run(approved.collected_as), journal_key)
    return [
        Parsed(item.envelope, orjson.loads(item.envelope_bytes))
        for item in collected.executions
        if item.envelope is not None and item.envelope_bytes is not None
    ]


def remembered(stored: Iterable[StoredEvidence]) -> Verified:
    """Which signatures are known to hold: those that were verified when the evidence was taken in."""
    known = {(item.digest, item.spki) for item in stored}
    return lambda evidence_digest, spki: (evidence_digest, spki) in known
