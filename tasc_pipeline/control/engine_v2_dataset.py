"""The identity of the joined table in engine v2: ``tasc-assessment-dataset-v2`` (original project, section 3.15). Pure.

A decision names the table that it was made from by digest. The table is never stored and never whole in memory: its
canonical bytes are made row by row from envelopes, columns and checked evidence, in the original's form, and only hashed.
Ids are ASCII slugs and digests, so they stand in canonical JSON as they are.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from tasc_collector.canonical import canonical_bytes, digest
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import Scored
from tasc_collector.contracts.evidence_trust import EvidenceReceipt, EvidenceStatus
from tasc_collector.contracts.sets import evaluator_set_digest, trace_set_digest
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.shadow.membership import group_bucket
from tasc_pipeline.control.engine_v2_diagnostics import BLOCKING, Backings, Diagnostics, Json
from tasc_pipeline.control.engine_v2_evidence import number as written
from tasc_pipeline.control.engine_v2_evidence import scored_evidence
from tasc_pipeline.control.identifiers import Codes, first_rows, texts
from tasc_pipeline.control.joined_rows import SPLITS, Executions, JoinedRows, Outcome
from tasc_pipeline.control.pairing import Floats
from tasc_pipeline.control.trace_checks import ProtocolTerms

_DOMAIN: Final = "tasc/assessment-dataset/v2"
_JOINED_AT_ONCE: Final = 256
"""Items of an array in one piece."""
_ONLINE: Final = SPLITS.index("online")
_OUTCOME_KIND: Final = {
    Outcome.SCORED: "scored",
    Outcome.FAILURE_ZERO: "protocol-failure-zero",
    Outcome.AMBIGUOUS: "ambiguous-execution",
    Outcome.ABSTAINED: "abstained",
    Outcome.MISSING: "missing-evidence",
    Outcome.INVALID: "invalid-evidence",
}
_EXECUTION: Final = (
    b'{"caseId":"%b","executionKey":"%b","groupId":"%b","outcome":%b,"profileId":"%b","replicateId":"%b","split":"%b",'
    b'"splitBucket":%b,"terminalStatus":"%b","trace":%b,"traceId":"%b"}'
)
_SCORED: Final = (
    b'{"evidence":%b,"evidenceAccepted":true,"evidenceDigest":"%b","kind":"scored","range":{"maximum":1,"minimum":0},'
    b'"score":%b,"verification":%b}'
)
_PAIR: Final = (
    b'{"caseId":"%b","declaredTrafficWeight":%b,"executionKeys":[%b],"groupId":"%b","pairKey":"%b","profileIds":%b,'
    b'"replicateId":"%b","slices":%b,"split":"%b"}'
)


class StoredTraces(Sequence[Parsed[TraceEnvelope]]):
    """Envelopes whose canonical bytes are at hand, each parsed only when it is asked for."""

    @abstractmethod
    def canonical(self, place: int) -> bytes:
        """The canonical bytes of one envelope."""


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


def dataset_of(rows: JoinedRows, given: Executions, sources: Sources) -> Dataset:
    """The digests of a joined table of envelopes.

    Args:
        rows: the joined rows.
        given: the columns that they were joined from, in the order of the envelopes.
        sources: envelopes and evidence.
    """
    found, sets = hashlib.sha256(), _set_digests(given, sources)
    for piece in _pieces(_Body(rows, given, sources).members(*sets)):
        found.update(piece)
    return Dataset(f"sha256:{found.hexdigest()}", *sets)


@dataclass(frozen=True, slots=True)
class _Streamed:
    """An array of which no more than a few items are in memory."""

    items: Iterable[bytes]


def dataset_json(rows: JoinedRows, given: Executions, sources: Sources) -> Iterator[bytes]:
    """The table's canonical JSON in pieces, as it is digested: under its domain, without its own digest.

    Args:
        rows: the joined rows.
        given: the columns that they were joined from, in the order of the envelopes.
        sources: envelopes and evidence.
    """
    return _pieces(_Body(rows, given, sources).members(*_set_digests(given, sources)))


def _pieces(members: dict[str, Any]) -> Iterator[bytes]:  # Any: JSON values, or a ``_Streamed``
    yield b'{"domain":"%b","value":{' % _DOMAIN.encode()
    for place, name in enumerate(sorted(members)):
        yield b'%b"%b":' % (b"," if place else b"", name.encode())
        member = members[name]
        if not isinstance(member, _Streamed):
            yield canonical_bytes(member)
            continue
        items, separator = iter(member.items), b""
        yield b"["
        while block := tuple(islice(items, _JOINED_AT_ONCE)):
            yield separator + b",".join(block)
            separator = b","
        yield b"]"
    yield b"}}"


def _set_digests(given: Executions, sources: Sources) -> tuple[str, str]:
    return (
        trace_set_digest(f"sha256:{text}" for text in texts(given.trace_digest)),
        evaluator_set_digest(receipt.source_digest for receipt in sources.receipts),
    )


class _Body:
    """The table in the original's form."""

    def __init__(self, rows: JoinedRows, given: Executions, sources: Sources) -> None:
        self._rows, self._given, self._sources = rows, given, sources
        self._terms, self._protocol = sources.terms, sources.terms.protocol
        revocations = {item.key_id: item.reason_code for item in sources.snapshot.revocations}
        self._backings = Backings(sources.receipts, revocations)
        self._keys = list(_execution_keys(rows.executions, self._terms.digest))
        self._buckets: dict[bytes, bytes] = {}
        self._first: Codes = rows.unit_rows.max(axis=1) if rows.units else np.zeros(0, dtype=np.int64)
        """One row of each unit; all of a case share what is asked of it."""
        self._pair_keys = list(self._keys_of_pairs())
        self._order: Codes = np.argsort(np.array(self._pair_keys, dtype=np.bytes_)).astype(np.int64)
        """Units in order of their pair keys."""

    def members(self, traces: str, evaluators: str) -> dict[str, Any]:  # Any: JSON values, or a ``_Streamed``
        """All but the digest of the table itself.

        Args:
            traces: digest of the set of envelopes.
            evaluators: digest of the set of evidence.
        """
        rows, given, sources, protocol = self._rows, self._given, self._sources, self._protocol
        contexts = {receipt.context.context_digest: receipt for receipt in sources.receipts}
        missing = list(self._missing_profiles())
        keys = [key.decode() for key in self._keys]
        diagnostics = Diagnostics(rows, given, sources.traces, self._backings, keys).value(missing)
        blocking = sorted(word for name, word in BLOCKING.items() if diagnostics[name])
        work = _join_work(len(given), len(sources.receipts), len(np.unique(given.group_id)), int(given.slices.sum()))
        return {
            "version": "tasc-assessment-dataset-v2",
            "studyId": protocol.study_id,
            "protocolDigest": self._terms.digest,
            "assessmentContextDigest": next(iter(contexts)) if len(contexts) == 1 else None,
            "traceSetDigest": traces,
            "evaluatorSetDigest": evaluators,
            "splitIdentity": protocol.split_membership.to_json(),
            "evaluatorIdentity": protocol.evaluator.to_json(),
            "requiredProfileIds": list(rows.executions.profile_ids),
            "verificationContextIdentities": sorted(map(_context_identity, contexts.values())),
            "executions": _Streamed(self._executions()),
            "pairs": _Streamed(self._pairs()),
            "work": {**work, "sliceAggregationVisits": int(rows.executions.slices[self._first].sum())},
            "counts": self._counts(rows.units - len(missing)),
            "diagnostics": diagnostics,
            "admissibility": {"valid": not blocking, "blockingReasons": blocking},
        }

    def _keys_of_pairs(self) -> Iterator[bytes]:
        rows, protocol = self._rows, self._terms.digest.encode()
        cases, replicates = rows.case_ids.tolist(), rows.replicate_ids.tolist()
        case_of, replicate_of = rows.case[self._first].tolist(), rows.replicate[self._first].tolist()
        for case, replicate in zip(case_of, replicate_of, strict=True):
            yield _digest(
                b"tasc/assessment-pair-key/v2",
                b'{"caseId":"%b","protocolDigest":"%b","replicateId":"%b"}'
                % (cases[case], protocol, replicates[replicate]),
            )

    def _executions(self) -> Iterator[bytes]:
        rows, executions = self._rows, self._rows.executions
        profiles = [name.encode() for name in executions.profile_ids]
        splits = [name.encode() for name in SPLITS]
        canonical, outcome = _canonical_reader(self._sources.traces), _Outcomes(rows, self._backings)
        columns = zip(
            rows.source.tolist(),
            self._keys,
            executions.case_id.tolist(),
            executions.replicate_id.tolist(),
            executions.group_id.tolist(),
            executions.trace_id.tolist(),
            executions.profile.tolist(),
            executions.split.tolist(),
            executions.succeeded.tolist(),
            strict=True,
        )
        for place, (source, key, case, replicate, group, trace, profile, split, succeeded) in enumerate(columns):
            yield _EXECUTION % (
                case,
                key,
                group,
                outcome.of(place),
                profiles[profile],
                replicate,
                splits[split],
                b"null" if split == _ONLINE else self._bucket(group),
                b"success" if succeeded else self._sources.traces[source].record.attempts[-1].status.encode(),
                canonical(source),
                trace,
            )

    def _bucket(self, group: bytes) -> bytes:
        if group not in self._buckets:
            self._buckets[group] = b"%d" % group_bucket(self._protocol.split_membership, group.decode())
        return self._buckets[group]

    def _pairs(self) -> Iterator[bytes]:
        rows, executions = self._rows, self._rows.executions
        cases, replicates, groups = rows.case_ids.tolist(), rows.replicate_ids.tolist(), rows.group_ids.tolist()
        profiles, slices = canonical_bytes(list(executions.profile_ids)), _Slices(executions)
        for unit in self._order.tolist():
            members = rows.unit_rows[unit].tolist()
            if min(members) < 0:
                continue
            row = members[0]
            yield _PAIR % (
                cases[int(rows.case[row])],
                written(float(executions.weight[row])).encode(),
                b",".join(b'"%b"' % key for key in sorted(self._keys[member] for member in members)),
                groups[int(rows.group[row])],
                self._pair_keys[unit],
                profiles,
                replicates[int(rows.replicate[row])],
                slices.of(row),
                SPLITS[int(executions.split[row])].encode(),
            )

    def _missing_profiles(self) -> Iterator[Json]:
        rows = self._rows
        incomplete = np.any(rows.unit_rows < 0, axis=1)
        for unit in self._order[incomplete[self._order]].tolist():
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
            "evidenceRows": len(self._sources.receipts),
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


class _Outcomes:
    """What each row counts as, with the evidence behind it."""

    def __init__(self, rows: JoinedRows, backings: Backings) -> None:
        self._backings = backings
        self._outcome, self._reason = rows.outcome.tolist(), rows.reason.tolist()
        self._evidence, self._accepted = rows.evidence.tolist(), rows.accepted.tolist()
        self._words, self._scores = rows.reason_words, rows.score.tolist()
        self._verified: dict[tuple[EvidenceStatus, str, str], bytes] = {}

    def of(self, place: int) -> bytes:
        """Canonical JSON of one row's outcome."""
        outcome, number = Outcome(self._outcome[place]), self._evidence[place]
        if outcome is Outcome.SCORED:
            receipt = self._backings.receipts[number]
            scored = receipt.evidence.outcome
            assert isinstance(scored, Scored)  # noqa: S101 - the join takes a score from nothing else
            return _SCORED % (
                scored_evidence(receipt.evidence, scored),
                receipt.evidence_digest.encode(),
                written(self._scores[place]).encode(),
                self._verification(number),
            )
        found: Json = {"kind": _OUTCOME_KIND[outcome]}
        if outcome is Outcome.FAILURE_ZERO:
            return canonical_bytes({**found, "score": 0, "evidence": None})
        reason = self._words[self._reason[place]]
        if outcome is Outcome.AMBIGUOUS:
            return canonical_bytes({**found, "reasonCode": reason, "score": None, "evidence": None})
        found |= self._backings.of(number) | {"evidenceAccepted": self._accepted[place]}
        return canonical_bytes({**found, "reasonCode": reason})

    def _verification(self, number: int) -> bytes:
        receipt = self._backings.receipts[number]
        key = (receipt.status, receipt.evidence.key_id, receipt.context.context_digest)
        if key not in self._verified:
            self._verified[key] = canonical_bytes(self._backings.verification(number))
        return self._verified[key]


class _Slices:
    """Canonical JSON of each row's slices."""

    def __init__(self, executions: Executions) -> None:
        self._executions = executions
        self._known: dict[bytes, bytes] = {}

    def of(self, row: int) -> bytes:
        """The slices of one row, sorted."""
        within = self._executions.slices[row]
        key = within.tobytes()
        if key not in self._known:
            names = zip(self._executions.slice_ids, within.tolist(), strict=True)
            self._known[key] = canonical_bytes([name for name, member in names if member])
        return self._known[key]


def _canonical_reader(traces: Sequence[Parsed[TraceEnvelope]]) -> Callable[[int], bytes]:
    if isinstance(traces, StoredTraces):
        return traces.canonical
    return lambda place: canonical_bytes(traces[place].value)


def _execution_keys(executions: Executions, protocol_digest: str) -> Iterator[bytes]:
    protocol, profiles = protocol_digest.encode(), [name.encode() for name in executions.profile_ids]
    for profile, trace, output, trace_digest in zip(
        executions.profile.tolist(),
        executions.trace_id.tolist(),
        executions.output_id.tolist(),
        executions.trace_digest.tolist(),
        strict=True,
    ):
        key_id, _, value = output.partition(b":")
        terminal = b'{"algorithm":"hmac-sha256","keyId":"%b","value":"%b"}' % (key_id, value) if output else b"null"
        joined = _digest(
            b"tasc/assessment-trace-join-key/v2",
            b'{"profileId":"%b","protocolDigest":"%b","terminalOutputId":%b,"traceId":"%b"}'
            % (profiles[profile], protocol, terminal, trace),
        )
        yield _digest(
            b"tasc/assessment-execution/v2",
            b'{"traceDigest":"sha256:%b","traceIdentityKey":"%b"}' % (trace_digest, joined),
        )


def _digest(domain: bytes, value: bytes) -> bytes:
    """``canonical.digest`` of a value whose canonical bytes are at hand."""
    return b"sha256:" + hashlib.sha256(b'{"domain":"%b","value":%b}' % (domain, value)).hexdigest().encode()


def _context_identity(receipt: EvidenceReceipt) -> str:
    context = receipt.context
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
