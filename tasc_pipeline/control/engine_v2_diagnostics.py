"""What an engine v2 table says of rows that do not count: the diagnostics of ``tasc-assessment-dataset-v2``. Pure.

Its words, keys and order are the original project's: they stand inside the table's digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from tasc_collector.canonical import MAX_SAFE_INTEGER, canonical_bytes, digest
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import Scored
from tasc_collector.contracts.evidence_trust import EvidenceReceipt, EvidenceStatus
from tasc_pipeline.control import joining
from tasc_pipeline.control.identifiers import texts
from tasc_pipeline.control.joined_rows import Evidence, Executions, JoinedRows, Outcome, Problem

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


@dataclass(frozen=True)
class Backings:
    """What stands for a piece of evidence in the table.

    Args:
        receipts: checked evidence, in the order given.
        revocations: reason code of each revoked key.
    """

    receipts: Sequence[EvidenceReceipt]
    revocations: Mapping[str, str]

    def evidence(self, number: int) -> Json:
        """The evidence as JSON; whole scores as integers, which is their canonical form."""
        receipt = self.receipts[number].evidence
        value = receipt.to_json()
        if isinstance(receipt.outcome, Scored):
            outcome = value["outcome"]
            for part in (outcome, *outcome["subscores"]):
                part["score"] = _whole(part["score"])
                part["range"] = {name: _whole(bound) for name, bound in part["range"].items()}
        return value

    def of(self, number: int) -> Json:
        """Evidence, digest and verification; nulls for -1."""
        if number < 0:
            return {"evidenceDigest": None, "evidence": None, "verification": None}
        return {
            "evidenceDigest": self.receipts[number].evidence_digest,
            "evidence": self.evidence(number),
            "verification": self.verification(number),
        }

    def verification(self, number: int) -> Json:
        """What the check of a piece of evidence found."""
        receipt = self.receipts[number]
        context, key_id = receipt.context, receipt.evidence.key_id
        revoked = receipt.status is EvidenceStatus.REVOKED
        return {
            "authentic": True,
            "status": receipt.status.value,
            "trusted": receipt.trusted,
            "reason": f"evidence key was revoked: {self.revocations[key_id]}" if revoked else REASONS[receipt.status],
            "keyId": key_id,
            "assessedAt": context.as_of,
            "assessmentContextDigest": context.context_digest,
            "operatorTrustPolicySnapshotDigest": context.operator_trust_policy_snapshot_digest,
            "evaluatorRevocationSnapshotDigest": context.evaluator_revocation_snapshot_digest,
        }


class Diagnostics:
    """The diagnostics of one table.

    Args:
        rows: the joined rows.
        given: the executions that they were joined from.
        traces: their envelopes, in the same order.
        backings: the evidence.
        evidence: its columns.
    """

    def __init__(
        self,
        rows: JoinedRows,
        given: Executions,
        traces: Sequence[Parsed[TraceEnvelope]],
        backings: Backings,
        evidence: Evidence,
    ) -> None:
        self._rows, self._given, self._traces = rows, given, traces
        self._backings, self._evidence = backings, evidence

    def value(self, missing_profiles: list[Json]) -> Json:
        """Every kind with its items, in the original's order.

        Args:
            missing_profiles: incomplete pairs.
        """
        rows, (numbers, places) = self._rows, self._rows.joined
        found: dict[str, list[Json]] = {name: [] for name in BLOCKING}
        found["missingProfileExecutions"] = missing_profiles
        for number, reason in zip(*(column.tolist() for column in rows.rejected), strict=True):
            found["invalidEvidence"].append(self._diagnostic(number, rows.reason_words[reason]))
        declared = self._evidence.outcome[numbers] != Outcome.SCORED
        for number, place in zip(numbers[declared].tolist(), places[declared].tolist(), strict=True):
            self._declared(found, number, place)
        for place in np.flatnonzero((rows.outcome == Outcome.MISSING) & ~rows.accepted).tolist():
            found["missingEvidence"].append(self._missing(place, joining.WITHOUT_EVIDENCE))
        for item in rows.problems:
            self._problem(found, item)
        return {name: sorted(items, key=_ORDER[name]) for name, items in found.items()}

    def _declared(self, found: dict[str, list[Json]], number: int, place: int) -> None:
        outcome, evidence_digest = (
            self._backings.evidence(number)["outcome"],
            self._backings.receipts[number].evidence_digest,
        )
        if outcome["kind"] == "abstained":
            found["abstainedEvidence"].append(
                {
                    "executionKey": self._key(place),
                    "evidenceDigest": evidence_digest,
                    "reasonCode": outcome["reasonCode"],
                }
            )
        elif outcome["kind"] == "missing":
            reason = f"evaluator-declared-{outcome['reasonCode']}"
            found["missingEvidence"].append({**self._missing(place, reason), "evidenceDigest": evidence_digest})
        else:
            found["invalidEvidence"].append(self._diagnostic(number, f"evaluator-declared-{outcome['reasonCode']}"))

    def _key(self, place: int) -> str:
        return f"sha256:{texts(self._rows.executions.key[place : place + 1])[0]}"

    def _missing(self, place: int, reason: str) -> Json:
        executions = self._rows.executions
        return {
            "executionKey": self._key(place),
            "traceId": texts(executions.trace_id[place : place + 1])[0],
            "profileId": executions.profile_ids[int(executions.profile[place])],
            "reason": reason,
        }

    def _diagnostic(self, number: int, reason: str) -> Json:
        evidence = self._backings.receipts[number].evidence
        return {
            **self._backings.of(number),
            "traceId": evidence.trace_id,
            "profileId": evidence.profile_id,
            "reason": reason,
        }

    @cached_property
    def _times_given(self) -> Mapping[str, int]:
        return Counter(texts(self._given.trace_id))

    def _digest_given(self, number: int) -> str:
        return f"sha256:{texts(self._given.trace_digest[number : number + 1])[0]}"

    def _problem(self, found: dict[str, list[Json]], item: Problem) -> None:
        traces, backings = self._traces, self._backings
        receipts = backings.receipts
        if item.kind == joining.ORPHAN_EVIDENCE:
            found["orphanEvidence"] += [self._diagnostic(number, item.reason) for number in item.rows]
        elif item.kind == joining.DUPLICATE_EVIDENCE:
            digests = texts(np.delete(self._evidence.digest, self._rows.rejected[0]))
            times = Counter(f"sha256:{digest}" for digest in digests)
            for number in item.rows:
                found["duplicateEvidence"].append(
                    {
                        "joinKey": _join_key(backings.evidence(number)),
                        "evidenceDigest": receipts[number].evidence_digest,
                        "occurrences": times[receipts[number].evidence_digest],
                        "row": backings.of(number),
                    }
                )
        elif item.kind == joining.CONFLICTING_EVIDENCE:
            for key, numbers in _grouped(item.rows, lambda number: _join_key(backings.evidence(number))):
                rows = sorted((backings.of(number) for number in numbers), key=lambda row: row["evidenceDigest"])
                found["conflictingEvidence"].append(
                    {
                        "joinKey": key,
                        "evidenceDigests": [row["evidenceDigest"] for row in rows],
                        "rows": rows,
                        "reason": item.reason,
                    }
                )
        elif item.kind == joining.DUPLICATE_TRACES:
            for number in item.rows:
                trace_id = traces[number].record.trace_id
                found["duplicateTraces"].append(
                    {
                        "traceDigest": self._digest_given(number),
                        "traceId": trace_id,
                        "occurrences": self._times_given[trace_id],
                    }
                )
        else:
            one_id = item.reason == "trace-id-lineage-conflict"
            for key, numbers in _grouped(item.rows, lambda number: _conflict_key(traces[number].value, by_id=one_id)):
                digests = [self._digest_given(number) for number in numbers]
                found["conflictingTraces"].append(
                    {
                        "authoritativeKey": key,
                        "traceDigests": sorted(set(digests)) if one_id else sorted(digests),
                        "reason": item.reason,
                    }
                )


def _whole(number: float) -> float:
    return int(number) if abs(number) <= MAX_SAFE_INTEGER and number == int(number) else number


def _grouped(numbers: Sequence[int], key_of: Callable[[int], str]) -> list[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for number in numbers:
        groups.setdefault(key_of(number), []).append(number)
    return list(groups.items())


def _join_key(value: Json) -> str:
    names = ("protocolDigest", "traceId", "profileId", "terminalOutputId")
    return digest("tasc/assessment-trace-join-key/v2", {name: value[name] for name in names})


def _conflict_key(value: Json, *, by_id: bool) -> str:
    if by_id:
        return digest("tasc/assessment-trace-id/v2", {"traceId": value["traceId"]})
    names = ("protocolDigest", "caseId", "replicateId", "profileId")
    return digest("tasc/assessment-logical-profile-key/v2", {name: value[name] for name in names})


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
