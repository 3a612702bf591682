"""The identity of the joined table in engine v2: ``tasc-assessment-dataset-v2`` (original project, section 3.15). Pure.

A decision names the table that it was made from by digest. The table is never stored and never whole in memory: its
canonical bytes are made a block of rows at a time (``engine_v2_texts``), in the original's form, and only hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tasc_collector.canonical import canonical_bytes, digest
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.context import AssessmentContext
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence_trust import EvidenceReceipt
from tasc_collector.contracts.sets import EVALUATOR_SET_DOMAIN, TRACE_SET_DOMAIN
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_pipeline.control.engine_v2_diagnostics import BLOCKING, Backings, Diagnostics, Json
from tasc_pipeline.control.engine_v2_texts import ExecutionTexts, pair_texts
from tasc_pipeline.control.identifiers import Codes, Flags, Ids, at, codes_of, first_rows, ordered_hex, texts
from tasc_pipeline.control.joined_rows import SPLITS, Evidence, Executions, JoinedRows, Outcome
from tasc_pipeline.control.pairing import Floats
from tasc_pipeline.control.trace_checks import ProtocolTerms

_DOMAIN: Final = "tasc/assessment-dataset/v2"
_PAIR_KEY: Final = (
    b'{"domain":"tasc/assessment-pair-key/v2","value":{"caseId":"%b","protocolDigest":"$","replicateId":"%b"}}'
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Digests of a joined table.

    Args:
        digest: of the whole table.
        trace_set_digest: of the envelopes that were given.
        evaluator_set_digest: of the checked evidence that was given.
    """

    digest: str
    trace_set_digest: str
    evaluator_set_digest: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What a table is joined from.

    Args:
        terms: the protocol's.
        traces: envelopes as they were read; each passed ``trace_checks``.
        receipts: evidence, checked against the snapshot.
        snapshot: the operator's.
    """

    terms: ProtocolTerms
    traces: Sequence[Parsed[TraceEnvelope]]
    receipts: Sequence[EvidenceReceipt]
    snapshot: EvaluatorTrustSnapshot


def dataset_of(rows: JoinedRows, given: Executions, evidence: Evidence, sources: Sources) -> Dataset:
    """The digests of a joined table of envelopes.

    Args:
        rows: the joined rows.
        given: the columns that they were joined from, in the order of the envelopes.
        evidence: the columns of the evidence, in its order.
        sources: envelopes and evidence.
    """
    body = _Body(rows, given, evidence, sources)
    return Dataset(f"sha256:{_sha256_of(body.pieces())}", body.trace_set_digest, body.evaluator_set_digest)


def dataset_json(rows: JoinedRows, given: Executions, evidence: Evidence, sources: Sources) -> Iterator[bytes]:
    """The table's canonical JSON in pieces, as it is digested: under its domain, without its own digest.

    Args:
        rows: the joined rows.
        given: the columns that they were joined from, in the order of the envelopes.
        evidence: the columns of the evidence, in its order.
        sources: envelopes and evidence.
    """
    return _Body(rows, given, evidence, sources).pieces()


def _sha256_of(pieces: Iterable[bytes]) -> str:
    """SHA-256 of pieces. Hashing a long one holds no lock of the interpreter: the next is made meanwhile."""
    found = hashlib.sha256()
    with ThreadPoolExecutor(max_workers=1) as hashing:
        last: Future[None] | None = None
        for piece in pieces:
            if last is not None:
                last.result()
            last = hashing.submit(found.update, piece)
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class _Streamed:
    """An array of which no more than a block of items, commas between them, is in memory."""

    blocks: Iterable[bytes]


class _Body:
    """The table in the original's form."""

    def __init__(self, rows: JoinedRows, given: Executions, evidence: Evidence, sources: Sources) -> None:
        self._rows, self._given, self._evidence, self._sources = rows, given, evidence, sources
        self._terms, self._protocol = sources.terms, sources.terms.protocol
        revocations = {item.key_id: item.reason_code for item in sources.snapshot.revocations}
        self._backings = Backings(sources.receipts, revocations)
        self._first: Codes = rows.unit_rows.max(axis=1) if rows.units else np.zeros(0, dtype=np.int64)
        """One row of each unit; all of a case share what is asked of it."""
        self._pair_keys = self._keys_of_pairs()
        self._order: Codes = ordered_hex(self._pair_keys)
        """Units in order of their pair keys."""
        self._incomplete: Flags = np.any(rows.unit_rows < 0, axis=1)
        self.trace_set_digest = _set_digest(TRACE_SET_DOMAIN, given.trace_digest)
        self.evaluator_set_digest = _set_digest(EVALUATOR_SET_DOMAIN, evidence.source_digest)

    def pieces(self) -> Iterator[bytes]:
        """The canonical JSON of all but the table's own digest."""
        members = self._members()
        yield b'{"domain":"%b","value":{' % _DOMAIN.encode()
        for place, name in enumerate(sorted(members)):
            yield b'%b"%b":' % (b"," if place else b"", name.encode())
            member = members[name]
            if not isinstance(member, _Streamed):
                yield canonical_bytes(member)
                continue
            yield b"["
            for number, block in enumerate(member.blocks):
                if number:
                    yield b","
                yield block
            yield b"]"
        yield b"}}"

    def _members(self) -> dict[str, Any]:  # Any: JSON values, or a ``_Streamed``
        rows, given, evidence, sources, protocol = (
            self._rows,
            self._given,
            self._evidence,
            self._sources,
            self._protocol,
        )
        contexts = self._contexts()
        missing = list(self._missing_profiles())
        diagnostics = Diagnostics(rows, given, sources.traces, self._backings, evidence).value(missing)
        blocking = sorted(word for name, word in BLOCKING.items() if diagnostics[name])
        work = _join_work(len(given), len(evidence), codes_of(given.group_id)[1], int(given.slices.sum()))
        executions = ExecutionTexts(rows, evidence, protocol.split_membership, sources.traces, self._backings)
        pairs = self._order[~self._incomplete[self._order]]
        return {
            "version": "tasc-assessment-dataset-v2",
            "studyId": protocol.study_id,
            "protocolDigest": self._terms.digest,
            "assessmentContextDigest": next(iter(contexts)) if len(contexts) == 1 else None,
            "traceSetDigest": self.trace_set_digest,
            "evaluatorSetDigest": self.evaluator_set_digest,
            "splitIdentity": protocol.split_membership.to_json(),
            "evaluatorIdentity": protocol.evaluator.to_json(),
            "requiredProfileIds": list(rows.executions.profile_ids),
            "verificationContextIdentities": sorted(map(_context_identity, contexts.values())),
            "executions": _Streamed(executions.blocks()),
            "pairs": _Streamed(pair_texts(rows, pairs, at(self._pair_keys, pairs))),
            "work": {**work, "sliceAggregationVisits": int(rows.executions.slices[self._first].sum())},
            "counts": self._counts(len(pairs)),
            "diagnostics": diagnostics,
            "admissibility": {"valid": not blocking, "blockingReasons": blocking},
        }

    def _contexts(self) -> dict[str, AssessmentContext]:
        """Every context that evidence was checked under, by its digest."""
        _, firsts = np.unique(self._evidence.context, return_index=True)
        found = (self._sources.receipts[place].context for place in firsts.tolist())
        return {context.context_digest: context for context in found}

    def _keys_of_pairs(self) -> Ids:
        """Pair key of each unit, hex."""
        executions, template = self._rows.executions, _PAIR_KEY.replace(b"$", self._terms.digest.encode())
        units = zip(
            at(executions.case_id, self._first).tolist(), at(executions.replicate_id, self._first).tolist(), strict=True
        )
        found = "".join([hashlib.sha256(template % unit).hexdigest() for unit in units])
        return np.frombuffer(found.encode("ascii"), dtype="S64")

    def _missing_profiles(self) -> Iterator[Json]:
        rows = self._rows
        for unit in self._order[self._incomplete[self._order]].tolist():
            row = int(self._first[unit])
            absent = zip(rows.executions.profile_ids, rows.unit_rows[unit].tolist(), strict=True)
            yield {
                "caseId": texts(rows.case_ids[rows.case[row : row + 1]])[0],
                "replicateId": texts(rows.replicate_ids[rows.replicate[row : row + 1]])[0],
                "missingProfileIds": [profile for profile, member in absent if member < 0],
            }

    def _counts(self, pairs: int) -> Json:
        rows, executions = self._rows, self._rows.executions
        units = self._first[self._order]
        case, group, split = rows.case[units], rows.group[units], executions.split[units]
        firsts = np.sort(first_rows(case, len(rows.case_ids)))
        cases = units[firsts[firsts >= 0]]
        """One row per case, in order of the first pair key of each."""
        within = executions.slices[units]
        return {
            "traceRows": len(self._given),
            "acceptedTraceRows": len(rows),
            "evidenceRows": len(self._evidence),
            "matchedRows": int(np.count_nonzero(rows.accepted)),
            "scoredRows": int(np.count_nonzero(rows.outcome == Outcome.SCORED)),
            "pairedCaseReplicates": pairs,
            "cases": len(cases),
            "caseReplicates": len(units),
            "groups": len(np.unique(rows.group[cases])),
            "observedTrafficMass": _mass(executions.weight[cases]),
            "splits": [
                {
                    "split": SPLITS[place],
                    "caseReplicates": int(np.count_nonzero(split == place)),
                    "groups": len(np.unique(group[split == place])),
                    "observedTrafficMass": _mass(executions.weight[cases[executions.split[cases] == place]]),
                }
                for place in np.unique(split).tolist()
            ],
            "slices": [
                {
                    "sliceId": name,
                    "caseReplicates": int(np.count_nonzero(within[:, column])),
                    "groups": len(np.unique(group[within[:, column]])),
                }
                for column, name in enumerate(executions.slice_ids)
                if np.any(within[:, column])
            ],
        }


def _set_digest(domain: str, digests: Ids) -> str:
    """``trace_set_digest`` and ``evaluator_set_digest`` of a column of digests, hex."""
    if not len(digests):
        return digest(domain, [])
    found = hashlib.sha256(b'{"domain":"%b","value":["sha256:' % domain.encode())
    found.update(b'","sha256:'.join(np.sort(digests).tolist()))
    found.update(b'"]}')
    return f"sha256:{found.hexdigest()}"


def _context_identity(context: AssessmentContext) -> str:
    return digest(
        "tasc/assessment-verification-context/v2",
        {
            "assessedAt": context.as_of,
            "assessmentContextDigest": context.context_digest,
            "evaluatorRevocationSnapshotDigest": context.evaluator_revocation_snapshot_digest,
            "operatorTrustPolicySnapshotDigest": context.operator_trust_policy_snapshot_digest,
        },
    )


def _join_work(traces: int, evidence: int, groups: int, labels: int) -> Json:
    hashes, diagnostics, output = (
        6 * traces + 4 * evidence,
        2 * traces + evidence,
        5 * traces + 2 * evidence + labels + 3,
    )
    return {
        "traceRows": traces,
        "evidenceRows": evidence,
        "independentGroups": groups,
        "labelMemberships": labels,
        "hashOperations": hashes,
        "diagnosticRows": diagnostics,
        "outputRows": output,
        "chargedUnits": traces + evidence + groups + labels + hashes + diagnostics + output,
    }


def _mass(weights: Floats) -> float:
    """Sum from the first to the last, as a loop would add them."""
    return float(np.cumsum(weights)[-1]) if len(weights) else 0.0
