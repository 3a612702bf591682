"""The identity of the joined table in engine v2: ``tasc-assessment-dataset-v2`` (original project, section 3.15). Pure.

A decision names the table that it was made from by digest. The table is never stored: it is built again from envelopes
and checked evidence, in the original's form, digested, and left. ``REASONS`` are that form's own words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tasc_collector.canonical import canonical_bytes, digest
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence_trust import EvidenceReceipt, EvidenceStatus
from tasc_collector.contracts.sets import evaluator_set_digest, trace_set_digest
from tasc_collector.contracts.trust_snapshot import EvaluatorTrustSnapshot
from tasc_collector.shadow.membership import group_bucket
from tasc_pipeline.control import joining
from tasc_pipeline.control.joined_rows import JoinedRows, Outcome, Problem
from tasc_pipeline.control.trace_checks import ProtocolTerms

Json = dict[str, Any]  # Any: JSON values
REASONS: Final[Mapping[EvidenceStatus, str]] = {
    EvidenceStatus.CONTEXT_MISMATCH: "assessment context does not bind the supplied trust and revocation snapshots",
    EvidenceStatus.UNKNOWN_KEY: "evidence key is absent from the operator trust snapshot",
    EvidenceStatus.MALFORMED_SIGNATURE: "evidence signature is not a canonical 64-byte Ed25519 signature",
    EvidenceStatus.INVALID_SIGNATURE: "Ed25519 signature does not cover the canonical evidence",
    EvidenceStatus.FUTURE_DATED: "evidence production time exceeds the allowed assessment-time skew",
    EvidenceStatus.STALE: "evidence exceeds the operator freshness window",
    EvidenceStatus.KEY_NOT_YET_VALID: "evidence predates the trusted key validity interval",
    EvidenceStatus.KEY_EXPIRED: "evidence postdates the trusted key validity interval",
    EvidenceStatus.UNAUTHORIZED_EVIDENCE: (
        "trusted key is not authorized for this evaluator, producer, rubric, or calibration"
    ),
    EvidenceStatus.TRUSTED: "canonical Ed25519 evidence is current and authorized",
}
"""A revoked key's reason ends in the revocation's own code."""
BLOCKING: Final = {
    "missingEvidence": "missing-evaluator-evidence",
    "invalidEvidence": "invalid-evaluator-evidence",
    "abstainedEvidence": "abstained-evaluator-evidence",
    "orphanEvidence": joining.ORPHAN_EVIDENCE,
    "duplicateEvidence": joining.DUPLICATE_EVIDENCE,
    "conflictingEvidence": joining.CONFLICTING_EVIDENCE,
    "duplicateTraces": joining.DUPLICATE_TRACES,
    "conflictingTraces": joining.CONFLICTING_TRACES,
    "missingProfileExecutions": "missing-profile-executions",
}
_OUTCOME_KIND: Final = {
    Outcome.SCORED: "scored",
    Outcome.FAILURE_ZERO: "protocol-failure-zero",
    Outcome.AMBIGUOUS: "ambiguous-execution",
    Outcome.ABSTAINED: "abstained",
    Outcome.MISSING: "missing-evidence",
    Outcome.INVALID: "invalid-evidence",
}


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


def dataset_of(rows: JoinedRows, sources: Sources) -> Dataset:
    """The digests of a joined table of envelopes."""
    body = _Body(rows, sources)
    value = body.value()
    return Dataset(
        digest("tasc/assessment-dataset/v2", value), str(value["traceSetDigest"]), str(value["evaluatorSetDigest"])
    )


class _Body:
    """The table in the original's form."""

    def __init__(self, rows: JoinedRows, sources: Sources) -> None:
        self._rows, self._sources = rows, sources
        self._protocol, self._terms = sources.terms.protocol, sources.terms
        source = rows.source.tolist()
        self._values = [sources.traces[place].value for place in source]
        self._records = [sources.traces[place].record for place in source]
        self._digests = [TraceEnvelope.digest_of(value) for value in self._values]
        self._keys = [self._execution_key(place) for place in range(len(source))]
        self._evidence = [receipt.evidence.to_json() for receipt in sources.receipts]
        self._revocations = {item.key_id: item.reason_code for item in sources.snapshot.revocations}

    def value(self) -> Json:
        """All but the digest of the table itself."""
        rows, sources, protocol = self._rows, self._sources, self._protocol
        contexts = sorted({receipt.context.context_digest for receipt in sources.receipts})
        verified = sorted({_context_identity(receipt) for receipt in sources.receipts})
        pairs, units, missing_profiles = self._pairs()
        diagnostics = self._diagnostics(missing_profiles)
        blocking = sorted(word for name, word in BLOCKING.items() if diagnostics[name])
        labels = sum(len(trace.record.slices) for trace in sources.traces)
        return {
            "version": "tasc-assessment-dataset-v2",
            "studyId": protocol.study_id,
            "protocolDigest": self._terms.digest,
            "assessmentContextDigest": contexts[0] if len(contexts) == 1 else None,
            "traceSetDigest": trace_set_digest(TraceEnvelope.digest_of(trace.value) for trace in sources.traces),
            "evaluatorSetDigest": evaluator_set_digest(receipt.source_digest for receipt in sources.receipts),
            "splitIdentity": protocol.split_membership.to_json(),
            "evaluatorIdentity": protocol.evaluator.to_json(),
            "requiredProfileIds": list(rows.executions.profile_ids),
            "verificationContextIdentities": verified,
            "executions": [self._execution(place) for place in range(len(rows))],
            "pairs": pairs,
            "work": {
                **_join_work(
                    len(sources.traces),
                    len(sources.receipts),
                    len({trace.record.group_id for trace in sources.traces}),
                    labels,
                ),
                "sliceAggregationVisits": sum(len(record.slices) for record in units),
            },
            "counts": self._counts(len(pairs), units),
            "diagnostics": diagnostics,
            "admissibility": {"valid": not blocking, "blockingReasons": blocking},
        }

    def _execution_key(self, place: int) -> str:
        return digest(
            "tasc/assessment-execution/v2",
            {"traceDigest": self._digests[place], "traceIdentityKey": _join_key(self._values[place])},
        )

    def _execution(self, place: int) -> Json:
        record = self._records[place]
        online = record.split == "online"
        return {
            "executionKey": self._keys[place],
            "traceId": record.trace_id,
            "caseId": record.case_id,
            "replicateId": record.replicate_id,
            "groupId": record.group_id,
            "profileId": record.profile_id,
            "split": record.split,
            "splitBucket": None if online else group_bucket(self._protocol.split_membership, record.group_id),
            "terminalStatus": record.attempts[-1].status,
            "outcome": self._outcome(place),
            "trace": self._values[place],
        }

    def _outcome(self, place: int) -> Json:
        rows = self._rows
        outcome = Outcome(int(rows.outcome[place]))
        reason = rows.reason_words[int(rows.reason[place])]
        found: Json = {"kind": _OUTCOME_KIND[outcome]}
        if outcome is Outcome.FAILURE_ZERO:
            return {**found, "score": 0, "evidence": None}
        if outcome is Outcome.AMBIGUOUS:
            return {**found, "reasonCode": reason, "score": None, "evidence": None}
        number = int(rows.evidence[place])
        found |= self._backing(number) | {"evidenceAccepted": bool(rows.accepted[place])}
        if outcome is Outcome.SCORED:
            scored = self._evidence[number]["outcome"]
            return {**found, "score": scored["score"], "range": scored["range"]}
        return {**found, "reasonCode": reason}

    def _backing(self, number: int) -> Json:
        if number < 0:
            return {"evidenceDigest": None, "evidence": None, "verification": None}
        return {
            "evidenceDigest": self._sources.receipts[number].evidence_digest,
            "evidence": self._evidence[number],
            "verification": self._verification(number),
        }

    def _verification(self, number: int) -> Json:
        receipt = self._sources.receipts[number]
        context, key_id = receipt.context, receipt.evidence.key_id
        revoked = receipt.status is EvidenceStatus.REVOKED
        return {
            "authentic": True,
            "status": receipt.status.value,
            "trusted": receipt.trusted,
            "reason": f"evidence key was revoked: {self._revocations[key_id]}" if revoked else REASONS[receipt.status],
            "keyId": key_id,
            "assessedAt": context.as_of,
            "assessmentContextDigest": context.context_digest,
            "operatorTrustPolicySnapshotDigest": context.operator_trust_policy_snapshot_digest,
            "evaluatorRevocationSnapshotDigest": context.evaluator_revocation_snapshot_digest,
        }

    def _pairs(self) -> tuple[list[Json], list[TraceEnvelope], list[Json]]:
        """Complete pairs, one envelope per (case, replicate) and incomplete ones, all in order of their pair keys."""
        profiles = self._rows.executions.profile_ids
        keyed = []
        for members in self._rows.unit_rows.tolist():
            present = sorted((row for row in members if row >= 0), key=lambda row: self._keys[row])
            keyed.append((_pair_key(self._values[present[0]]), members, present))
        pairs, units, missing = [], [], []
        for key, members, present in sorted(keyed):
            record = self._records[present[0]]
            units.append(record)
            absent = [profile for profile, row in zip(profiles, members, strict=True) if row < 0]
            if absent:
                missing.append(
                    {"caseId": record.case_id, "replicateId": record.replicate_id, "missingProfileIds": absent}
                )
                continue
            pairs.append(
                {
                    "pairKey": key,
                    "caseId": record.case_id,
                    "replicateId": record.replicate_id,
                    "groupId": record.group_id,
                    "split": record.split,
                    "declaredTrafficWeight": record.workload.declared_traffic_weight,
                    "slices": sorted(record.slices),
                    "profileIds": list(profiles),
                    "executionKeys": sorted(self._keys[row] for row in present),
                }
            )
        return pairs, units, missing

    def _counts(self, pairs: int, units: Sequence[TraceEnvelope]) -> Json:
        rows = self._rows
        cases = {record.case_id: record for record in reversed(units)}
        ordered = [record for record in units if cases[record.case_id] is record]
        return {
            "traceRows": len(self._sources.traces),
            "acceptedTraceRows": len(rows),
            "evidenceRows": len(self._sources.receipts),
            "matchedRows": int(np.count_nonzero(rows.accepted)),
            "scoredRows": int(np.count_nonzero(rows.outcome == Outcome.SCORED)),
            "pairedCaseReplicates": pairs,
            "cases": len(ordered),
            "caseReplicates": len(units),
            "groups": len({record.group_id for record in ordered}),
            "observedTrafficMass": _mass(ordered),
            "splits": [
                {
                    "split": split,
                    "caseReplicates": sum(record.split == split for record in units),
                    "groups": len({record.group_id for record in units if record.split == split}),
                    "observedTrafficMass": _mass([record for record in ordered if record.split == split]),
                }
                for split in sorted({record.split for record in units})
            ],
            "slices": [
                {
                    "sliceId": name,
                    "caseReplicates": sum(name in record.slices for record in units),
                    "groups": len({record.group_id for record in units if name in record.slices}),
                }
                for name in sorted({name for record in units for name in record.slices})
            ],
        }

    def _diagnostics(self, missing_profiles: list[Json]) -> Json:
        rows = self._rows
        found: dict[str, list[Json]] = {name: [] for name in BLOCKING}
        found["missingProfileExecutions"] = missing_profiles
        for number, reason in zip(*(column.tolist() for column in rows.rejected), strict=True):
            found["invalidEvidence"].append(self._diagnostic(number, rows.reason_words[reason]))
        for number, place in zip(*(column.tolist() for column in rows.joined), strict=True):
            self._declared(found, number, place)
        for place in np.flatnonzero((rows.outcome == Outcome.MISSING) & ~rows.accepted).tolist():
            found["missingEvidence"].append(self._missing(place, joining.WITHOUT_EVIDENCE))
        for item in rows.problems:
            self._problem(found, item)
        return {name: sorted(items, key=_ORDER[name]) for name, items in found.items()}

    def _declared(self, found: dict[str, list[Json]], number: int, place: int) -> None:
        outcome, evidence_digest = self._evidence[number]["outcome"], self._sources.receipts[number].evidence_digest
        if outcome["kind"] == "abstained":
            found["abstainedEvidence"].append(
                {
                    "executionKey": self._keys[place],
                    "evidenceDigest": evidence_digest,
                    "reasonCode": outcome["reasonCode"],
                }
            )
        elif outcome["kind"] == "missing":
            reason = f"evaluator-declared-{outcome['reasonCode']}"
            found["missingEvidence"].append({**self._missing(place, reason), "evidenceDigest": evidence_digest})
        elif outcome["kind"] == "invalid":
            found["invalidEvidence"].append(self._diagnostic(number, f"evaluator-declared-{outcome['reasonCode']}"))

    def _missing(self, place: int, reason: str) -> Json:
        record = self._records[place]
        return {
            "executionKey": self._keys[place],
            "traceId": record.trace_id,
            "profileId": record.profile_id,
            "reason": reason,
        }

    def _diagnostic(self, number: int, reason: str) -> Json:
        evidence = self._evidence[number]
        return {
            **self._backing(number),
            "traceId": evidence["traceId"],
            "profileId": evidence["profileId"],
            "reason": reason,
        }

    def _problem(self, found: dict[str, list[Json]], item: Problem) -> None:
        traces, receipts = self._sources.traces, self._sources.receipts
        if item.kind == joining.ORPHAN_EVIDENCE:
            found["orphanEvidence"] += [self._diagnostic(number, item.reason) for number in item.rows]
        elif item.kind == joining.DUPLICATE_EVIDENCE:
            rejected = set(self._rows.rejected[0].tolist())
            times = Counter(
                receipt.evidence_digest for number, receipt in enumerate(receipts) if number not in rejected
            )
            for number in item.rows:
                found["duplicateEvidence"].append(
                    {
                        "joinKey": _join_key(self._evidence[number]),
                        "evidenceDigest": receipts[number].evidence_digest,
                        "occurrences": times[receipts[number].evidence_digest],
                        "row": self._backing(number),
                    }
                )
        elif item.kind == joining.CONFLICTING_EVIDENCE:
            for key, numbers in _grouped(item.rows, lambda number: _join_key(self._evidence[number])):
                backing = sorted((self._backing(number) for number in numbers), key=lambda row: row["evidenceDigest"])
                found["conflictingEvidence"].append(
                    {
                        "joinKey": key,
                        "evidenceDigests": [row["evidenceDigest"] for row in backing],
                        "rows": backing,
                        "reason": item.reason,
                    }
                )
        elif item.kind == joining.DUPLICATE_TRACES:
            times = Counter(trace.record.trace_id for trace in traces)
            for number in item.rows:
                trace_id = traces[number].record.trace_id
                found["duplicateTraces"].append(
                    {
                        "traceDigest": TraceEnvelope.digest_of(traces[number].value),
                        "traceId": trace_id,
                        "occurrences": times[trace_id],
                    }
                )
        else:
            one_id = item.reason == "trace-id-lineage-conflict"
            for key, numbers in _grouped(item.rows, lambda number: _conflict_key(traces[number].value, by_id=one_id)):
                digests = [TraceEnvelope.digest_of(traces[number].value) for number in numbers]
                found["conflictingTraces"].append(
                    {
                        "authoritativeKey": key,
                        "traceDigests": sorted(set(digests)) if one_id else sorted(digests),
                        "reason": item.reason,
                    }
                )


def _grouped(numbers: Sequence[int], key_of: Callable[[int], str]) -> list[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for number in numbers:
        groups.setdefault(key_of(number), []).append(number)
    return list(groups.items())


def _join_key(value: Json) -> str:
    names = ("protocolDigest", "traceId", "profileId", "terminalOutputId")
    return digest("tasc/assessment-trace-join-key/v2", {name: value[name] for name in names})


def _pair_key(value: Json) -> str:
    names = ("protocolDigest", "caseId", "replicateId")
    return digest("tasc/assessment-pair-key/v2", {name: value[name] for name in names})


def _conflict_key(value: Json, *, by_id: bool) -> str:
    if by_id:
        return digest("tasc/assessment-trace-id/v2", {"traceId": value["traceId"]})
    names = ("protocolDigest", "caseId", "replicateId", "profileId")
    return digest("tasc/assessment-logical-profile-key/v2", {name: value[name] for name in names})


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


def _mass(records: Sequence[TraceEnvelope]) -> float:
    mass = 0.0
    for record in records:
        mass += record.workload.declared_traffic_weight
    return mass


_VERIFICATION_ORDER: Final = (
    "authentic",
    "status",
    "trusted",
    "reason",
    "keyId",
    "assessedAt",
    "assessmentContextDigest",
    "operatorTrustPolicySnapshotDigest",
    "evaluatorRevocationSnapshotDigest",
)


def _verified(value: Json) -> list[Any]:  # Any: JSON scalars
    return [value["verification"][name] for name in _VERIFICATION_ORDER]


def _by(*names: str) -> Callable[[Json], bytes]:
    return lambda item: canonical_bytes([item.get(name) for name in names])


_ORDER: Final[Mapping[str, Callable[[Json], bytes]]] = {
    "missingEvidence": _by("executionKey", "traceId", "profileId", "reason", "evidenceDigest"),
    "invalidEvidence": lambda item: canonical_bytes(
        [item["evidenceDigest"], item["traceId"], item["profileId"], item["reason"], _verified(item)]
    ),
    "abstainedEvidence": _by("executionKey", "evidenceDigest", "reasonCode"),
    "orphanEvidence": lambda item: canonical_bytes(
        [item["evidenceDigest"], item["traceId"], item["profileId"], item["reason"], _verified(item)]
    ),
    "duplicateEvidence": lambda item: canonical_bytes(
        [item["joinKey"], item["evidenceDigest"], item["occurrences"], _verified(item["row"])]
    ),
    "conflictingEvidence": lambda item: canonical_bytes(
        [
            item["joinKey"],
            item["evidenceDigests"],
            item["reason"],
            [[row["evidenceDigest"], _verified(row)] for row in item["rows"]],
        ]
    ),
    "duplicateTraces": _by("traceDigest", "traceId", "occurrences"),
    "conflictingTraces": _by("authoritativeKey", "traceDigests", "reason"),
    "missingProfileExecutions": _by("caseId", "replicateId", "missingProfileIds"),
}
