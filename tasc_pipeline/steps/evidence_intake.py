"""Taking evaluator evidence in: all of a file, or nothing of it.

Procedure; the first step that fails names file, line and rule, and nothing is taken:

1. The study is a decision study with an evaluator trust snapshot of its operator.
2. The whole file is read: NDJSON, or Parquet with one column ``evidence``. Every line is a record.
3. Every piece is trusted now, by that snapshot: signature, revocation, freshness, authorization. Its key and evaluator
   are those that the protocol pins.
4. What was taken in before is left out; adding a file again changes nothing.
5. Every new piece is about an accepted trace of a window of this study and about the output that the trace has. Together
   with what is stored and still trusted there is no duplicate and no conflict, and nothing new is older than its answer.
6. One content-addressed file with its signed batch is written, and the windows' tables are published.

Trust is asked again as of every assessment. Only the signatures are not: the batch remembers under which key they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_batch import EvidenceBatch, VerifiedKey
from tasc_collector.contracts.evidence_trust import EvidenceChecker, EvidenceReceipt, EvidenceStatus
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.errors import InputError
from tasc_collector.wire.records import read_ndjson_records, read_record
from tasc_pipeline.control.engine_v2 import refuse_problems
from tasc_pipeline.control.joined_rows import JoinedRows
from tasc_pipeline.control.joining import join
from tasc_pipeline.control.record_columns import evidence_of, executions_of
from tasc_pipeline.control.trace_checks import ProtocolTerms, check_traces
from tasc_pipeline.home import evidence as storage
from tasc_pipeline.home import keys, signers
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.home.window_index import current_keys, window_facts
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.evidence import context_of, envelopes, remembered, trust_snapshot
from tasc_pipeline.steps.evidence_tables import publish_evidence
from tasc_pipeline.steps.watch import counted
from tasc_pipeline.warehouse.evidence_file import evidence_rows, published_trace_ids
from tasc_pipeline.warehouse.manifests import window_keys

PARQUET_SUFFIX: Final = ".parquet"
_SCORE_AGAIN: Final = "have the answers scored and signed again"
WAYS_OUT: Final[Mapping[EvidenceStatus, str]] = {
    EvidenceStatus.CONTEXT_MISMATCH: "check against the snapshot that the context names",
    EvidenceStatus.UNKNOWN_KEY: "add the key to the operator's trust snapshot, if you trust it",
    EvidenceStatus.MALFORMED_SIGNATURE: "get the file again from the evaluator; it was altered on its way",
    EvidenceStatus.INVALID_SIGNATURE: "get the file again from the evaluator; it was altered, or another key signed it",
    EvidenceStatus.REVOKED: f"{_SCORE_AGAIN} with a key that is not revoked",
    EvidenceStatus.FUTURE_DATED: f"correct the clock of the evaluator's machine and {_SCORE_AGAIN[5:]}",
    EvidenceStatus.STALE: f"{_SCORE_AGAIN}: it is older than the operator's snapshot allows",
    EvidenceStatus.KEY_NOT_YET_VALID: f"{_SCORE_AGAIN} within the key's validity",
    EvidenceStatus.KEY_EXPIRED: f"{_SCORE_AGAIN} with a key that is valid",
    EvidenceStatus.UNAUTHORIZED_EVIDENCE: "use the evaluator, producer, rubric and calibration that the key may sign for",
}
"""What to do about evidence that is not trusted."""


@dataclass(frozen=True, slots=True)
class Added:
    """What ``add`` did.

    Args:
        new: pieces that were taken in.
        known: pieces that had been taken in before.
        windows: new pieces by window.
        late: of them, those that were produced after the window's watermark, by its newest revision.
        unscored: successful executions of those windows, by profile, that have no evidence yet.
    """

    new: int
    known: int
    windows: Mapping[str, int]
    late: Mapping[str, int]
    unscored: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a decision study says about evidence."""

    loaded: LoadedStudy
    protocol: ProtocolTerms
    snapshot: EvaluatorTrustSnapshot


def add_evidence(home: Home, study_id: str, path: Path, now: datetime) -> Added:
    """Take a file of evidence in by the procedure of this module.

    Args:
        home: the state folder.
        study_id: the study.
        path: NDJSON, or Parquet where the name ends in ``.parquet``.
        now: the wall clock; trust is asked as of this instant.

    Raises:
        InputError: the first thing that is not right; nothing was taken.
    """
    terms = _terms(home, study_id)
    at = format_timestamp(now)
    read = list(_read_file(path))
    context = context_of(terms.snapshot, at)
    checker = EvidenceChecker(terms.snapshot, context)
    tell, receipts = counted("checking evidence", len(read)), []
    for item in read:
        receipts.append(checker.check(item))
        tell(1)
    _check_trusted(receipts, terms, path)
    _check_once(receipts, path)
    ring = keys.read_ring(home)
    stored = {
        item.digest: item for batch in storage.batches(home, study_id, ring) for item in storage.read(home, batch)
    }
    fresh = [
        (item, receipt) for item, receipt in zip(read, receipts, strict=True) if receipt.evidence_digest not in stored
    ]
    windows = _windows_of(home, study_id, {item.record.trace_id for item, _ in fresh}, path)
    before = EvidenceChecker(terms.snapshot, context, verified=remembered(stored.values()))
    unscored: Counter[str] = Counter()
    for key, trace_ids in windows.items():
        own = [receipt for _, receipt in fresh if receipt.evidence.trace_id in trace_ids]
        traces = envelopes(home, load_approved(home, key))
        known = {trace.record.trace_id for trace in traces}
        earlier = [before.check(item.parsed) for item in stored.values() if item.parsed.record.trace_id in known]
        unscored.update(_unscored(_joined(traces, terms, own, earlier)))
    if fresh:
        _store(home, terms, [item for item, _ in fresh], sorted(windows), at)
    tell = counted("publishing evidence of windows", len(windows))
    for key in windows:
        publish_evidence(home, key)
        tell(1)
    return Added(
        new=len(fresh),
        known=len(read) - len(fresh),
        windows={key: sum(item.record.trace_id in ids for item, _ in fresh) for key, ids in sorted(windows.items())},
        late=_late(home, [item for item, _ in fresh], windows),
        unscored=dict(unscored),
    )


def _late(home: Home, fresh: Sequence[Parsed[EvaluatorEvidence]], windows: Mapping[str, set[str]]) -> dict[str, int]:
    """Evidence that only a revision can count, by the newest revision that there is."""
    facts = window_facts(home)
    newest = {(facts[key].study_id, facts[key].window_id): facts[key] for key in current_keys(facts)}
    found = {}
    for key, trace_ids in sorted(windows.items()):
        last = newest[facts[key].study_id, facts[key].window_id]
        late = sum(item.record.trace_id in trace_ids and item.record.produced_at > last.watermark for item in fresh)
        if late:
            found[last.window_key] = late
    return found


def _terms(home: Home, study_id: str) -> _Terms:
    loaded = load_study(home, study_id)
    if loaded.protocol is None:
        raise InputError(
            "this study is a comparison; it needs no scores",
            where=study_id,
            field="kind",
            way_out="add evidence to a decision study, or just assess this one: tasc assess",
        )
    return _Terms(loaded, ProtocolTerms.of(loaded.protocol), trust_snapshot(loaded))


def _read_file(path: Path) -> Iterator[Parsed[EvaluatorEvidence]]:
    if path.suffix == PARQUET_SUFFIX:
        for number, data in enumerate(evidence_rows(path), start=1):
            yield read_record(EvaluatorEvidence, data, where=f"{path.name} row {number}")
    else:
        yield from read_ndjson_records(EvaluatorEvidence, path)


def _check_trusted(receipts: Sequence[EvidenceReceipt], terms: _Terms, path: Path) -> None:
    """Step 3."""
    if not receipts:
        raise InputError("the file holds no evidence", where=str(path), way_out="name the evaluator's file")
    columns = evidence_of(receipts, terms.protocol)
    for line, receipt in enumerate(receipts, start=1):
        place, field = f"{path.name} line {line}", f"trace {receipt.evidence.trace_id}"
        if not receipt.trusted:
            many = sum(item.status is receipt.status for item in receipts)
            raise InputError(
                f"{many} of {len(receipts)} pieces of evidence are not trusted; nothing was taken",
                where=place,
                field=field,
                rule=receipt.status.value,
                way_out=WAYS_OUT[receipt.status],
            )
        for holds, rule, way_out in (
            (
                columns.terms_match[line - 1],
                "study, protocol, evaluator, rubric, calibration and producer are the protocol's",
                "score under this protocol's evaluator, or add the evidence to the study it was made for",
            ),
            (
                columns.key_pinned[line - 1],
                "the protocol pins the evaluator's key (evaluator.requiredTrustedKeyIds)",
                f"{_SCORE_AGAIN} with a pinned key",
            ),
        ):
            if not holds:
                raise InputError(
                    "this evidence is not the study's; nothing was taken",
                    where=place,
                    field=field,
                    rule=rule,
                    way_out=way_out,
                )


def _check_once(receipts: Sequence[EvidenceReceipt], path: Path) -> None:
    seen: dict[str, int] = {}
    for line, receipt in enumerate(receipts, start=1):
        first = seen.setdefault(receipt.evidence_digest, line)
        if first != line:
            raise InputError(
                f"the same evidence stands in line {first} and line {line}; nothing was taken",
                where=path.name,
                field=f"trace {receipt.evidence.trace_id}",
                rule="one piece of evidence stands once",
                way_out="take the repeated line out",
            )


def _windows_of(home: Home, study_id: str, trace_ids: set[str], path: Path) -> dict[str, set[str]]:
    """Window (revision 1) of each trace, from the published tables; the journals are read afterwards."""
    published = set(window_keys(home.warehouse, "traces"))
    found: dict[str, set[str]] = {}
    left = set(trace_ids)
    for key, facts in sorted(window_facts(home).items(), reverse=True):
        if not left or facts.study_id != study_id or facts.revision != 1 or key not in published:
            continue
        own = left & published_trace_ids(home.warehouse, key, keys.collector_keys(home))
        if own:
            found[key] = own
            left -= own
    if left:
        raise InputError(
            f"{len(left)} of {len(trace_ids)} pieces of evidence are about no trace of this study; nothing was taken",
            where=path.name,
            field=f"trace {min(left)}",
            rule="no-matching-trace: a trace outside every window of the study",
            way_out="collect and publish the window first, or take the lines out",
        )
    return found


def _joined(
    traces: Sequence[Parsed[TraceEnvelope]],
    terms: _Terms,
    own: Sequence[EvidenceReceipt],
    earlier: Sequence[EvidenceReceipt],
) -> JoinedRows:
    """Step 5: the same join as the assessment's. What is not trusted any more is no obstacle to what replaces it."""
    check_traces(traces, terms.protocol, verified=True)
    rows = join(executions_of(traces, terms.protocol.protocol), evidence_of([*own, *earlier], terms.protocol))
    refuse_problems(rows.problems)
    numbers, reasons = rows.rejected
    for number, reason in zip(numbers.tolist(), reasons.tolist(), strict=True):
        if number < len(own):
            raise InputError(
                "evidence cannot count for its trace; nothing was taken",
                where=own[number].evidence.trace_id,
                rule=rows.reason_words[reason],
                way_out=f"{_SCORE_AGAIN} after the execution has ended",
            )
    return rows


def _unscored(rows: JoinedRows) -> Counter[str]:
    lacking = rows.executions.profile[rows.executions.succeeded & ~rows.accepted]
    return Counter(rows.executions.profile_ids[place] for place in lacking.tolist())


def _store(
    home: Home, terms: _Terms, evidence: Sequence[Parsed[EvaluatorEvidence]], windows: Sequence[str], at: str
) -> None:
    content = storage.content_of(evidence)
    used = {item.record.key_id for item in evidence}
    verified = tuple(
        VerifiedKey(key_id=key.key_id, public_key_spki=key.public_key_spki)
        for key in terms.snapshot.keys
        if key.key_id in used
    )
    signer = signers.collector(home, keys.read_ring(home), terms.loaded.study, at)
    batch = EvidenceBatch.sign_with(
        signer.key,
        signer.key_id,
        study_id=terms.loaded.study.study_id,
        protocol_digest=terms.protocol.digest,
        content_digest=storage.content_digest(content),
        rows=len(evidence),
        window_keys=tuple(windows),
        keys=verified,
        added_at=at,
    )
    storage.store(home, batch, content)
